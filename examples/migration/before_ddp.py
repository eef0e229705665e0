# mypy: disable-error-code="no-untyped-call"
"""`torchrun --standalone --nproc-per-node 2 before_ddp.py`."""

from pathlib import Path
from typing import Any

import task
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

SAVED = Path("ddp.pt")


def main() -> None:
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(task.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.RATE)
    scheduler = task.schedule(optimizer)
    data = task.digits()
    sampler: DistributedSampler[Any] = DistributedSampler(
        data, shuffle=task.SHUFFLE
    )
    loader = DataLoader(data, task.BATCH // workers, sampler=sampler)
    first_epoch, step = 0, 0
    if SAVED.exists():
        state = torch.load(SAVED)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first_epoch, step = state["epoch"], state["step"]
    for epoch in range(first_epoch, task.EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, target in loader:
            loss = F.cross_entropy(model(inputs), target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            mean = loss.detach() / workers
            dist.all_reduce(mean)
            if rank == 0 and step % 11 == 0:
                print(f"step {step}: {mean.item():.7f}")
        right = evaluate(model, rank, workers)
        if rank == 0:
            print(f"accuracy: {right:.7f}")
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch + 1,
                    "step": step,
                },
                SAVED,
            )
    dist.destroy_process_group()


@torch.no_grad()
def evaluate(model: Any, rank: int, workers: int) -> float:
    """Each worker takes its part; no sample counts twice."""
    inputs, target = task.digits(held_out=True).tensors
    output = model.module(inputs[rank::workers])
    right = (output.argmax(1) == target[rank::workers]).sum()
    dist.all_reduce(right)
    return float(right) / len(target)


if __name__ == "__main__":
    main()
