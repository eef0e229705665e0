"""What workers measure while they train; each function is the target of a run."""

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import paceline
from paceline.comm.binding import device_table
from paceline.comm.device_kind import device_kind
from paceline.conformance.worker.figures import write_figures
from paceline.conformance.worker.model import GPT, next_token_loss, random_text
from paceline.schedulers.task_placement import placement
from paceline.train.trainer import Trainer

WARM_UP_STEPS, COUNTED_STEPS = 5, 20
SAMPLES_PER_WORKER = 8
POLL_SECONDS = 0.001


def devices() -> None:
    """Take a step, and write what this worker computes on."""
    with paceline.start(_training(steps=1)) as trainer:
        _steps(trainer, iter(trainer), 1)
        kind, device = device_kind(), trainer.device
        _write(
            trainer,
            {
                "device": kind.title(device),
                "type": device.type,
                "memory_bytes": kind.memory_bytes(device, trainer._groups.placement),
                "backend": trainer._groups.backend,
                "binding": _binding(trainer) if kind.one_per_worker else None,
                "can_be_made_sick": kind.failure_injection() is not None,
                "counts_waits": kind.counted_waits() is not None,
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    **kind.versions(),
                },
            },
        )


def _binding(trainer: Trainer) -> dict[str, Any]:
    """Return where this worker's device is; without its UUID, which names one single device."""
    row = asdict(device_table.row(trainer.rank, trainer.device))
    return {name: value for name, value in row.items() if name != "uuid"}


def host_waits() -> None:
    """Count how often the host waits for the device in a step."""
    with paceline.start(_training(steps=WARM_UP_STEPS + COUNTED_STEPS)) as trainer:
        batches = iter(trainer)
        _steps(trainer, batches, WARM_UP_STEPS)
        counting = device_kind().counted_waits()
        assert counting is not None, "the check asks for it before"
        with counting as waits:
            for _ in range(COUNTED_STEPS):
                _steps(trainer, batches, 1)
                _let_device_follow(trainer.device)
        _write(trainer, {"steps": COUNTED_STEPS, "waits": waits})


def _let_device_follow(device: torch.device) -> None:
    """Poll until the device has done the step: a host that is steps ahead must wait in the end."""
    done = torch.accelerator.current_stream(device).record_event()
    while not done.query():
        time.sleep(POLL_SECONDS)


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


def _steps(trainer: Trainer, batches: Iterator[paceline.Batch], number: int) -> None:
    for _ in range(number):
        trainer.step(next(batches))


def _write(trainer: Trainer, figures: dict[str, Any]) -> None:
    write_figures(Path(os.environ["PACELINE_RUN"]), trainer.rank, figures)
