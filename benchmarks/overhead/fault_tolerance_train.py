"""A training that is prepared for faults in every second block of steps, and not in the others.

On this machine's CPU it is the GPT of the benchmarks; paced, layers that wait for as long and have
gradients of the same size, as with an accelerator that leaves the processor alone.
"""

import os
import threading
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from benchmarks.common.gpt import BATCH, optimizer
from benchmarks.common.gpt_training import training as gpt_training
from paceline.testbed.paced import PacedCost, paced_model
from paceline.train.elastic.peer_copies import PeerCopies
from paceline.train.monitor.monitor import Monitor

BLOCK = 20
COPY_EVERY, COPY_AT = 10, 5
"""Not at a block's end: what a copy takes beside training is to fall into its own block."""
LAYERS = 4
LAYER = PacedCost(forward_seconds=0.008, backward_seconds=0.016, parameter_bytes=867_000)
STEPS = int(os.environ.get("STEPS", "0"))


def prepared(step: int) -> bool:
    """Whether this step is watched and its state copied."""
    return (step - 1) // BLOCK % 2 == 1


def _take_turns() -> None:
    learned, check = Monitor.learned, Monitor.check

    def maybe_learned(self: Monitor, step: int, parallel_model: Any, learn: Any) -> Any:
        return learned(self, step, parallel_model, learn) if prepared(step) else learn()

    def maybe_check(self: Monitor, step: int) -> None:
        if prepared(step):
            check(self, step)
        if step == STEPS:
            _tell_control_seconds()

    def is_due(self: PeerCopies, step: int) -> bool:
        del self
        return prepared(step) and step % COPY_EVERY == COPY_AT

    Monitor.learned = maybe_learned  # type: ignore[method-assign]
    Monitor.check = maybe_check  # type: ignore[method-assign]
    PeerCopies.is_due = is_due  # type: ignore[method-assign]


def _tell_control_seconds() -> None:
    """What the thread that watches over the others has taken of a core since it began."""
    control = next(each for each in threading.enumerate() if each.name == "control")
    used = {each.id: each for each in psutil.Process().threads()}[control.native_id or 0]
    folder = Path(os.environ["PACELINE_RUN"])
    (folder / f"control-{os.getpid()}").write_text(str(used.user_time + used.system_time))


def training() -> paceline.Training:
    if os.environ["ALTERNATE"] == "yes":
        _take_turns()
    if os.environ["DEVICE"] == "paced":
        inputs = torch.rand(4096, 16, generator=torch.Generator().manual_seed(0))
        return paceline.Training(
            model=lambda: paced_model([LAYER] * LAYERS),
            loss=F.mse_loss,
            data=TensorDataset(inputs, 2 * inputs),
            optimizer=optimizer,
            batch=BATCH,
            steps=STEPS,
        )
    return gpt_training(STEPS)
