"""A stream: samples that have no index, with a state that is saved."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset

import paceline
from paceline.checkpoints.ledger import read_ledger
from paceline.specs import Saving
from ranks import RankFailed, new_run, run_ranks
from trainings.comparison import (
    LAYOUTS,
    Trained,
    classified,
    killed_and_resumed,
    plain_loop,
    under_paceline,
)


class Endless(IterableDataset[Any]):
    """Vectors and their class, from a seed and the number of the sample, without an end."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.number = seed, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            generator = torch.Generator().manual_seed(1000 * self.seed + self.number)
            inputs = torch.randn(6, generator=generator)
            self.number += 1
            yield inputs, (inputs[:3].sum() > 0).long()

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def streamed() -> paceline.Training:
    """A batch of 15 does not divide among two workers."""
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)),
        loss=F.cross_entropy,
        data=Endless(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.2, momentum=0.9),
        batch=15,
        steps=12,
    )


def differing() -> paceline.Training:
    """As a stream that shuffles without a seed."""
    return streamed().replace(data=Endless(seed=os.getpid()))


def fit_streamed() -> None:
    paceline.fit(streamed())


@pytest.fixture(scope="module")
def plain() -> Trained:
    training, stream = streamed(), iter(Endless())
    return plain_loop(
        training,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
        classified,
        steps=[list(islice(stream, training.first_batch)) for _ in range(training.total_steps)],
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(streamed, LAYOUTS[layout], tmp_path).check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(streamed, LAYOUTS["2 shards"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )


def test_workers_that_read_different_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="read different samples from the stream"):
        under_paceline(differing, LAYOUTS["2 replicas"], tmp_path)


def test_the_ledger_counts_positions(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2, saving=Saving(every_steps=0, ledger=True))
    run_ranks(fit_streamed, 2, tmp_path, run=run)
    (record,) = read_ledger(run.ledger)
    assert (record.by, record.samples, record.exact) == ("stream position", 12 * 15, True)
