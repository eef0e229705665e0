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

STEPS, KILLED_IN_STEP = 12, 6


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
    generator = torch.Generator().manual_seed(3)
    angle = 6.283 * torch.rand(90, generator=generator)
    return paceline.Training(
        model=Gan,
        data=TensorDataset(
            torch.randn(90, 4, generator=generator),
            torch.stack([angle.cos(), angle.sin()], dim=1),
        ),
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
