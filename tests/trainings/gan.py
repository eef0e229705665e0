"""A small GAN: two optimizers that take turns; the discriminator trains twice as often."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import TensorDataset

import paceline

STEPS, KILLED_IN_STEP, VALIDATED_EVERY = 12, 6, 4


class Gan(nn.Module):
    """A generator of points in the plane, and a discriminator with blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)]
        self.discriminator = nn.Sequential(nn.Linear(2, 8), nn.ModuleList(blocks), nn.Linear(8, 1))

    def judged(self, points: torch.Tensor) -> torch.Tensor:
        """Return the logit of each point's being real."""
        first, blocks, last = self.discriminator
        points = first(points)
        assert isinstance(blocks, nn.ModuleList)
        for block in blocks:
            points = points + block(points)
        judged: torch.Tensor = last(points)
        return judged


class Generating(Gan):
    """A GAN whose own forward generates points, for metrics."""

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Return generated points."""
        points: torch.Tensor = self.generator(noise)
        return points


def distance(generated: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return the mean distance of generated points from the circle that real ones lie on."""
    del real
    away: torch.Tensor = generated.norm(dim=1) - 1
    return away.abs().mean()


def circle(samples: int, seed: int) -> TensorDataset:
    """Pairs of noise and points on a circle."""
    generator = torch.Generator().manual_seed(seed)
    angle = 6.283 * torch.rand(samples, generator=generator)
    noise = torch.randn(samples, 4, generator=generator)
    return TensorDataset(noise, torch.stack([angle.cos(), angle.sin()], dim=1))


HELD_OUT = circle(41, seed=4)
"""More samples than a batch, and an odd number."""


def discriminator_loss(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
    """Tell real points from generated ones, in two forwards of the discriminator."""
    assert isinstance(model, Gan)
    with torch.no_grad():
        fake = model.generator(noise)
    return F.softplus(-model.judged(real)).mean() + F.softplus(model.judged(fake)).mean()


def generator_loss(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
    """Generate points that pass for real; the gradient passes through the discriminator."""
    del real
    assert isinstance(model, Gan)
    return F.softplus(-model.judged(model.generator(noise))).mean()


def training() -> paceline.Training:
    """Batches of 32 do not divide 90 samples: the last of an epoch has 26."""
    return paceline.Training(
        model=Gan,
        data=circle(90, seed=3),
        phases={
            "discriminator": paceline.Phase(
                loss=discriminator_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
                parameters="discriminator.*",
                clip=0.5,
            ),
            "generator": paceline.Phase(
                loss=generator_loss,
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
                parameters="generator.*",
                schedule=lambda optimizer: ExponentialLR(optimizer, 0.9),
                every=2,
            ),
        },
        batch=32,
        steps=STEPS,
    )


def validated() -> paceline.Training:
    """The same with a validation, whose best model generates points nearest to the circle."""
    validation = paceline.Validation(
        HELD_OUT, metrics={"distance": distance}, every_steps=VALIDATED_EVERY, best="min distance"
    )
    return training().replace(model=Generating, validation=validation)


def struck() -> None:
    """Train; the worker VICTIM dies after the discriminator's update of a step."""
    described, done = training(), 0

    def fatal(model: nn.Module, noise: Any, real: Any) -> torch.Tensor:
        is_victim = os.environ["PACELINE_RANK"] == os.environ["VICTIM"]
        if done == KILLED_IN_STEP - 1 and is_victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return generator_loss(model, noise, real)

    assert described.phases is not None
    phases = described.phases | {"generator": replace(described.phases["generator"], loss=fatal)}  # type: ignore[operator]
    with paceline.start(replace(described, phases=phases)) as trainer:
        for batch in trainer:
            done = trainer.step(batch).step
        trainer.export(Path("weights.safetensors"))
