"""`torchrun --standalone --nproc-per-node 2 before_accelerate.py`."""

import task
import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader

ACCUMULATE = 2


def main() -> None:
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=ACCUMULATE
    )
    torch.manual_seed(0)
    plain = task.network()
    workers = accelerator.num_processes
    model, optimizer, loader, held_out = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters(), lr=task.RATE),
        DataLoader(
            task.digits(),
            batch_size=task.BATCH // workers // ACCUMULATE,
            shuffle=task.SHUFFLE,
        ),
        DataLoader(task.digits(held_out=True), batch_size=task.BATCH),
    )
    # A prepared schedule would advance once per worker and step.
    scheduler = task.schedule(optimizer.optimizer)
    step, mean = 0, torch.zeros(())
    for _ in range(task.EPOCHS):
        for inputs, target in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), target)
                accelerator.backward(loss)
                mean += loss.detach() / ACCUMULATE
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                whole = accelerator.reduce(mean, "mean")
                if step % 11 == 0:
                    accelerator.print(f"step {step}: {whole.item():.7f}")
                mean = torch.zeros(())
        right = seen = 0
        for inputs, target in held_out:
            with torch.no_grad():
                answer = model(inputs).argmax(1)
            found = accelerator.gather_for_metrics((answer, target))
            right += int((found[0] == found[1]).sum())
            seen += len(found[1])
        accelerator.print(f"accuracy: {right / seen:.7f}")
        accelerator.save_state("accelerate-state")
    accelerator.end_training()


if __name__ == "__main__":
    main()
