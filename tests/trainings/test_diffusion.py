"""Diffusion: a dataset that draws a moment and noise for each sample, by sample and epoch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    plain_loop,
    plain_steps,
    stacked,
    under_paceline,
)

POINTS, MOMENTS = 70, 20
KEPT = torch.linspace(0.99, 0.7, MOMENTS).cumprod(0)


class NoisyCircle(Dataset[Any]):
    """Points on a circle with fresh noise."""

    def __len__(self) -> int:
        return POINTS

    def __getitem__(self, index: int) -> Any:
        angle = torch.tensor(6.283 * index / POINTS)
        moment, noise = torch.randint(MOMENTS, ()), torch.randn(2)
        kept = KEPT[moment]
        point = torch.stack([angle.cos(), angle.sin()])
        return (kept.sqrt() * point + (1 - kept).sqrt() * noise, moment), noise


class Denoiser(nn.Module):
    """Estimate the noise in points of a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.moments = nn.Embedding(MOMENTS, 16)
        self.into, self.out = nn.Linear(2, 16), nn.Linear(16, 2)

    def forward(self, points: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        noise: torch.Tensor = self.out((self.into(points) + self.moments(moment)).tanh())
        return noise


def diffusion() -> paceline.Training:
    """Batches of 15 do not divide 70 points; three epochs, so that the noise changes."""
    return paceline.Training(
        model=Denoiser,
        loss=F.mse_loss,
        data=NoisyCircle(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        batch=15,
        epochs=3,
    )


@pytest.fixture(scope="module")
def plain() -> Trained:
    def loss_of(model: nn.Module, samples: list[Any]) -> torch.Tensor:
        pairs, noise = zip(*samples, strict=True)
        return F.mse_loss(model(*stacked(pairs)), torch.stack(noise))

    return plain_loop(
        diffusion(), lambda model: torch.optim.Adam(model.parameters(), lr=0.01), loss_of
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(diffusion, LAYOUTS[layout], tmp_path).check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    """The kill is in the second epoch: what the first one drew is not repeated."""
    killed_and_resumed(diffusion, LAYOUTS["2 shards"], tmp_path, killed_after=7).check_equals(
        plain.after(6)
    )


def test_every_epoch_draws_other_noise() -> None:
    steps = [noise for samples in plain_steps(diffusion()) for _, noise in samples]
    assert len({tuple(each.tolist()) for each in steps}) == 3 * POINTS
