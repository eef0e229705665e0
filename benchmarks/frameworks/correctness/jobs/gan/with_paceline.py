"""The training with Paceline: `paceline run with_paceline.py:recorded -n 3`."""

from typing import Any

import torch
from torch.nn import functional as F

import paceline
from benchmarks.frameworks.correctness.jobs.gan.data import points
from benchmarks.frameworks.correctness.jobs.given import BATCH, EPOCHS, chosen, record
from examples.gan.train import Gan


def judged(model: Any, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    fake = model.generator(noise).detach()
    right = F.softplus(-model.discriminator(real)).mean()
    return right + F.softplus(model.discriminator(fake)).mean()


def drawn(model: Any, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    del real
    return F.softplus(-model.discriminator(model.generator(noise))).mean()


def adam(parameters: paceline.Parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def training() -> paceline.Training:
    return paceline.Training(
        model=Gan,
        data=chosen(points()),
        phases={
            "judge": paceline.Phase(loss=judged, optimizer=adam, parameters="discriminator.*"),
            "draw": paceline.Phase(loss=drawn, optimizer=adam, parameters="generator.*", every=2),
        },
        batch=BATCH,
        epochs=EPOCHS,
        shuffle=False,
    )


def recorded() -> None:
    with paceline.start(training()) as trainer:
        steps = [trainer.step(batch) for batch in trainer]
        record(trainer.model, len(steps))


if __name__ == "__main__":
    paceline.fit(training())
