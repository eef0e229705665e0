"""A training on paced devices, with a delay somewhere: `INJECTION` is written in its place."""

import os
import time
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline
from paceline.testbed.paced import PacedCost, paced_model

WHERE, WHO, SECONDS = "none", -1, 0.0
"""What is delayed, on which worker (-1: on all), and by how much in a step or for a write."""
BATCH, STEPS, WORKERS = 16, 40, 4
LAYERS, LAYER_SECONDS, LAYER_BYTES = 4, 0.010, 40_000


def delay(where: str) -> float:
    """Of this worker."""
    here = WHO in (-1, int(os.environ["SLURM_PROCID"]))
    return SECONDS if where == WHERE and here else 0.0


class Samples(Dataset[Any]):
    """Numbers, which may come late."""

    def __len__(self) -> int:
        return 10 * BATCH

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(delay("data") * WORKERS / BATCH)
        return torch.full((8,), float(number)), torch.zeros(8)


def slow_disk(seconds: float) -> None:
    """From now on, every write takes longer to reach the disk."""
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        time.sleep(seconds)
        plain(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def training() -> paceline.Training:
    if delay("disk"):
        slow_disk(delay("disk"))
    each = LAYER_SECONDS + delay("compute") / LAYERS
    cost = PacedCost(each / 3, 2 * each / 3, LAYER_BYTES)
    return paceline.Training(
        model=lambda: paced_model([cost] * LAYERS),
        loss=F.mse_loss,
        data=Samples(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-9),
        batch=BATCH,
        steps=STEPS,
    )
