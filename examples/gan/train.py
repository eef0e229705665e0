"""A GAN: a generator learns to draw points on two moons, and a discriminator to tell them apart.

Each step updates the discriminator, and every second step the generator, with an optimizer each.
The noise is part of the data, so that any number of workers trains on the same.
"""

from typing import Any

import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline

POINTS, NOISE, WIDTH = 2000, 4, 64


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(NOISE, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 2),
        )
        self.discriminator = nn.Sequential(
            nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
        )


def discriminator_loss(model: Any, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    fake = model.generator(noise).detach()
    return (
        F.softplus(-model.discriminator(real)).mean() + F.softplus(model.discriminator(fake)).mean()
    )


def generator_loss(model: Any, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    del real
    return F.softplus(-model.discriminator(model.generator(noise))).mean()


def training() -> paceline.Training:
    points, _ = make_moons(POINTS, noise=0.05, random_state=0)
    noise = torch.randn(POINTS, NOISE, generator=torch.Generator().manual_seed(0))
    return paceline.Training(
        model=Gan,
        data=TensorDataset(noise, torch.tensor(points, dtype=torch.float32)),
        phases={
            "discriminator": paceline.Phase(
                loss=discriminator_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
                parameters="discriminator.*",
            ),
            "generator": paceline.Phase(
                loss=generator_loss,
                optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
                parameters="generator.*",
                every=2,
            ),
        },
        batch=100,
        epochs=3,
    )


if __name__ == "__main__":
    paceline.fit(training())
