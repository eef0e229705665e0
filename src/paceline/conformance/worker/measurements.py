"""What workers measure while they train; each function is the target of a run."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

import paceline
from paceline.comm.device_kind import device_kind
from paceline.conformance.worker.figures import write_figures
from paceline.conformance.worker.model import GPT, next_token_loss, random_text
from paceline.schedulers.task_placement import placement
from paceline.train.trainer import Trainer

WARM_UP_STEPS, COUNTED_STEPS = 5, 20
SAMPLES_PER_WORKER = 8


def devices() -> None:
    """Take a step, and write what this worker computes on."""
    with paceline.start(_training(steps=1)) as trainer:
        _steps(trainer, 1)
        kind, device = device_kind(), trainer.device
        _write(
            trainer,
            {
                "device": kind.title(device),
                "type": device.type,
                "memory_bytes": kind.memory_bytes(device, trainer._groups.placement),
                "backend": trainer._groups.backend,
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    **kind.versions(),
                },
            },
        )


def host_waits() -> None:
    """Count how often the host waits for the device in a step."""
    with paceline.start(_training(steps=WARM_UP_STEPS + COUNTED_STEPS)) as trainer:
        _steps(trainer, WARM_UP_STEPS)
        counting = device_kind().counted_waits()
        if counting is None:
            waits = None
        else:
            with counting as waits:
                _steps(trainer, COUNTED_STEPS)
        _write(trainer, {"steps": COUNTED_STEPS, "waits": waits})


def _training(steps: int) -> paceline.Training:
    return paceline.Training(
        model=lambda: GPT(vocabulary=256, layers=4, width=64, heads=4),
        loss=next_token_loss,
        data=random_text(256, 512, 16),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        batch=SAMPLES_PER_WORKER * placement().workers,
        steps=steps,
        clip=1.0,
    )


def _steps(trainer: Trainer, number: int) -> None:
    batches = iter(trainer)
    for _ in range(number):
        trainer.step(next(batches))


def _write(trainer: Trainer, figures: dict[str, Any]) -> None:
    write_figures(Path(os.environ["PACELINE_RUN"]), trainer.rank, figures)
