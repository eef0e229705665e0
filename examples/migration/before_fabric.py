"""`python before_fabric.py`: Fabric starts the other worker."""

from typing import Any

import task
import torch
from lightning_fabric import Fabric  # or lightning.fabric
from torch.nn import functional as F
from torch.utils.data import DataLoader

WORKERS = 2


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=WORKERS, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    plain = task.network()
    model, optimizer = fabric.setup(
        plain, torch.optim.AdamW(plain.parameters(), lr=task.RATE)
    )
    loader: Any = fabric.setup_dataloaders(
        DataLoader(
            task.digits(),
            task.BATCH // WORKERS,
            shuffle=task.SHUFFLE,
        )
    )
    scheduler = task.schedule(optimizer.optimizer)
    step = 0
    for _ in range(task.EPOCHS):
        for inputs, target in loader:
            loss = F.cross_entropy(model(inputs), target)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            mean: Any = fabric.all_reduce(loss.detach())
            if step % 11 == 0:
                fabric.print(f"step {step}: {mean.item():.7f}")
        right = evaluate(fabric, model)
        fabric.print(f"accuracy: {right:.7f}")
        state: dict[str, Any] = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "step": step,
        }
        fabric.save("fabric.ckpt", state)


@torch.no_grad()
def evaluate(fabric: Fabric, model: Any) -> float:
    """Each worker takes its part; no sample counts twice."""
    inputs, target = task.digits(held_out=True).tensors
    mine = slice(fabric.global_rank, None, fabric.world_size)
    answer = model(inputs[mine]).argmax(1)
    right = (answer == target[mine]).sum().float()
    whole: Any = fabric.all_reduce(right, reduce_op="sum")
    return float(whole) / len(target)


if __name__ == "__main__":
    main()
