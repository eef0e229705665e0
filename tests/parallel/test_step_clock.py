"""What a worker's time goes to, with delays that were put where they are to be found."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import paceline
from paceline.parallel.step.step_clock import Clock, LastGradient
from paceline.report import RunReader
from paceline.report.run.step_breakdown import Breakdown, breakdown
from paceline.specs import PARTS, Layout, Part, Saving
from ranks import new_run, run_ranks
from train.trainings import CLASSES, FEATURES, classification

pytestmark = pytest.mark.alone

DELAY_SECONDS = 0.1
"""More than a step takes even on a fifth of a core."""


def test_every_moment_belongs_to_one_part() -> None:
    clock = Clock()
    began = time.perf_counter()
    clock.take()
    clock.turn("forward")
    time.sleep(0.01)
    with clock.during("communication"):
        time.sleep(0.02)
    clock.turn("optimizer")
    time.sleep(0.005)
    clock.waited(0.004)
    taken, whole = clock.take(), time.perf_counter() - began
    assert set(taken) == set(PARTS)
    assert taken["forward"] >= 0.01
    assert taken["communication"] >= 0.024
    assert 0.001 <= taken["optimizer"] < 0.005
    assert sum(taken.values()) == pytest.approx(whole, abs=1e-3)
    assert sum(clock.take().values()) < 1e-3


def test_after_the_first_backward_only_the_last_gradient_is_watched() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    arrived: list[int] = []
    last = LastGradient(model.parameters(), lambda: arrived.append(1))
    for expected in (4, 5, 6):
        torch.autograd.backward(model(torch.ones(1, 4)).sum())
        last.settle()
        assert len(arrived) == expected
    last.close()
    torch.autograd.backward(model(torch.ones(1, 4)).sum())
    assert len(arrived) == 6


class Slow(Dataset[Any]):
    """Samples of which each takes its time on one worker."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._seconds)
        return torch.full((FEATURES,), number / 64), number % CLASSES


class Sleeping(torch.autograd.Function):
    """Takes its time forward and as long backward."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradients[0], None


class Paced(nn.Module):
    """A model that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, 32), nn.Linear(32, CLASSES)
        self._seconds = seconds

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = Sleeping.apply(self.first(inputs), self._seconds)  # type: ignore[no-untyped-call]
        output: torch.Tensor = self.second(hidden)
        return output


def train(where: str, rank: int) -> None:
    """Train with a delay of `DELAY_SECONDS` in a part of the steps of a worker."""
    here = int(os.environ["PACELINE_RANK"]) == rank
    late = DELAY_SECONDS if here else 0.0
    changes: dict[str, Any] = {"steps": 12, "batch": 4}
    if where == "data":
        changes["data"] = Slow(late / 2)  # two samples each
    elif where == "compute":
        changes["model"] = lambda: Paced(late / 2)
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            if where == "other":
                time.sleep(late)
            trainer.step(batch)


def broken_down(folder: Path, layout: Layout, where: str, rank: int) -> Breakdown:
    run = new_run(folder, 2, layout)
    run_ranks(train, 2, folder, where, rank, run=run)
    found = breakdown(RunReader(run).refresh())
    assert found is not None
    return found


@pytest.mark.parametrize(
    "layout", [Layout(replicas=2), Layout(shards=2)], ids=["copied", "sharded"]
)
@pytest.mark.parametrize("where", ["data", "compute", "other"])
def test_a_delay_is_found_where_it_was_put(tmp_path: Path, layout: Layout, where: str) -> None:
    found = broken_down(tmp_path, layout, where, rank=1)
    assert found.limit == "slow worker"
    assert (found.slow[0].rank, found.slow[0].reason) == (1, where)
    # One worker is late, the other one waits for it: half of the delay each, in the mean.
    assert found.seconds["communication"] >= 0.4 * DELAY_SECONDS
    mean_of: dict[str, tuple[Part, ...]] = {
        "data": ("data",),
        "compute": ("forward", "backward"),
        "other": ("other",),
    }
    late = sum(found.seconds[part] for part in mean_of[where])
    assert 0.5 * DELAY_SECONDS <= late <= 0.9 * DELAY_SECONDS


def save_slowly() -> None:
    """Train with a checkpoint after every other step, each of which takes its time to write."""
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        time.sleep(DELAY_SECONDS)
        plain(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    with paceline.start(classification(steps=8)) as trainer:
        for batch in trainer:
            trainer.step(batch)


def test_a_slow_disk_is_found(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2, saving=Saving(every_steps=2))
    run_ranks(save_slowly, 2, tmp_path, run=run)
    found = breakdown(RunReader(run).refresh())
    assert found is not None
    # Worker 0 has most to write, and may be the one that the other waits for.
    reasons = {each.reason for each in found.slow}
    assert found.limit == "checkpoints" or (found.limit, reasons) == (
        "slow worker",
        {"checkpoints"},
    )
    assert found.seconds["checkpoint"] > 0.5 * DELAY_SECONDS
