"""`deepspeed --num_accelerators 2 before_deepspeed.py`."""

from typing import Any

import deepspeed
import task
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

SETTINGS = {
    "train_batch_size": task.BATCH,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
}


def main() -> None:
    deepspeed.init_distributed()
    workers = dist.get_world_size()
    torch.manual_seed(0)
    plain = task.network()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=task.RATE)
    engine, *_ = deepspeed.initialize(
        model=plain,
        optimizer=optimizer,
        lr_scheduler=task.schedule(optimizer),
        config=SETTINGS,
    )
    data = task.digits()
    sampler: DistributedSampler[Any] = DistributedSampler(
        data, shuffle=task.SHUFFLE
    )
    loader = DataLoader(data, task.BATCH // workers, sampler=sampler)
    step = 0
    for epoch in range(task.EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, target in loader:
            loss = F.cross_entropy(engine(inputs), target)
            engine.backward(loss)
            engine.step()
            step += 1
            mean = loss.detach() / workers
            dist.all_reduce(mean)
            if dist.get_rank() == 0 and step % 11 == 0:
                print(f"step {step}: {mean.item():.7f}")
        right = evaluate(engine, dist.get_rank(), workers)
        if dist.get_rank() == 0:
            print(f"accuracy: {right:.7f}")
        engine.save_checkpoint("deepspeed-state")


@torch.no_grad()
def evaluate(engine: Any, rank: int, workers: int) -> float:
    """Each worker takes its part; no sample counts twice."""
    inputs, target = task.digits(held_out=True).tensors
    output = engine.module(inputs[rank::workers])
    right = (output.argmax(1) == target[rank::workers]).sum()
    dist.all_reduce(right)
    return float(right) / len(target)


if __name__ == "__main__":
    main()
