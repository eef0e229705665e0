"""Weighted sampling: some samples are drawn more often than others, through `order=`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import paceline
from paceline.data.order import Indices
from train.trainings import CLASSES, FEATURES, classification
from trainings.comparison import (
    LAYOUTS,
    Trained,
    classified,
    killed_and_resumed,
    plain_loop,
    under_paceline,
)


@dataclass(frozen=True)
class Rare:
    """Draws the samples of the second half four times as often as those of the first."""

    samples: int
    seed: int

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions` of an epoch."""
        odds = np.where(np.arange(self.samples) < self.samples // 2, 1.0, 4.0)
        drawn = np.random.default_rng((self.seed, epoch)).choice(
            self.samples, self.samples, p=odds / odds.sum()
        )
        return drawn[positions.start : positions.stop].astype(np.uint64)


def weighted() -> paceline.Training:
    """Batches of 32 do not divide 90 samples: the last of an epoch has 26."""
    return classification(
        90,
        model=lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)),
        order=lambda seed: Rare(90, seed),
        steps=12,
    )


@pytest.fixture(scope="module")
def plain() -> Trained:
    return plain_loop(
        weighted(),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
        classified,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(weighted, LAYOUTS[layout], tmp_path).check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(weighted, LAYOUTS["2 shards"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )
