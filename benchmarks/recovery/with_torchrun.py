# mypy: disable-error-code="no-untyped-call"
"""The job in bare DDP, for torchrun: it starts again from a checkpoint of a few steps before."""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.recovery.job import (
    PEER_TIMEOUT_SECONDS,
    STEPS,
    History,
    Paced,
    Points,
    loss_sum,
    optimizer,
)
from benchmarks.recovery.sizes import BATCH

SAVE_EVERY = 5


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=PEER_TIMEOUT_SECONDS))
    rank, workers = dist.get_rank(), dist.get_world_size()
    network = Paced()
    update = optimizer(network.parameters())
    checkpoint = Path(os.environ["RECOVERY_HISTORY"]).parent / "checkpoint.pt"
    done = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["model"])
        update.load_state_dict(saved["optimizer"])
        done = saved["step"]
    model = DistributedDataParallel(network)
    data, history = Points(), History(rank)
    begun = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.broadcast(begun, src=0)
    attempt = f"{begun.item():.3f}"
    while done < STEPS:
        ids = range(done * BATCH, (done + 1) * BATCH)[rank::workers]
        history.entering(done + 1, attempt, ids)
        inputs, label = data.rows(ids)
        # DDP takes the mean over workers, whose shares may differ by one sample.
        (loss_sum(model(inputs), label) * workers / BATCH).backward()
        update.step()
        update.zero_grad()
        done += 1
        history.committed(done, attempt)
        if done % SAVE_EVERY == 0 and rank == 0:
            state = {
                "model": network.state_dict(),
                "optimizer": update.state_dict(),
                "step": done,
            }
            draft = checkpoint.with_suffix(".draft")
            torch.save(state, draft)
            draft.replace(checkpoint)


if __name__ == "__main__":
    main()
