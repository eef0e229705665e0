"""The job of `watching.py`: prepared for faults or, to know what that costs, not.

On this machine's CPU it is the GPT of `overhead.py`; paced, layers that wait for as long and have
gradients of the same size, as with an accelerator that leaves the processor alone.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1] / "overhead_job"))
from job import BATCH, RandomText, network, next_byte_loss, optimizer

import paceline
from paceline.testbed.paced import PacedCost, paced_model
from paceline.train.watching import Watching

LAYERS = 4
LAYER = PacedCost(forward_seconds=0.008, backward_seconds=0.016, parameter_bytes=867_000)


def _unwatched(self: Watching, step: int, arranged: Any, learn: Any) -> Any:
    del self, step, arranged
    return learn()


def training() -> paceline.Training:
    if os.environ["WATCHING"] == "off":
        Watching.learned = _unwatched  # type: ignore[method-assign]
        Watching.stepped = lambda self, step: None  # type: ignore[method-assign]
    steps = int(os.environ["STEPS"])
    if os.environ["DEVICE"] == "paced":
        inputs = torch.rand(4096, 16, generator=torch.Generator().manual_seed(0))
        return paceline.Training(
            model=lambda: paced_model([LAYER] * LAYERS),
            loss=F.mse_loss,
            data=TensorDataset(inputs, 2 * inputs),
            optimizer=optimizer,
            batch=BATCH,
            steps=steps,
        )
    return paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=optimizer,
        batch=BATCH,
        steps=steps,
    )
