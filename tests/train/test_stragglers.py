"""Who holds the others up is named soon, with the reason, and nobody else is."""

import math
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import paceline
from paceline.comm.groups import Groups
from paceline.parallel.step.step_clock import Clock
from paceline.specs import PARTS, Layout, Part, Placement, SyncSettings
from paceline.train.monitor import stragglers
from paceline.train.monitor.stragglers import Stragglers, median_seconds
from ranks import run_ranks
from train.trainings import CLASSES, FEATURES, classification
from train.watched import found, rank, watched_run

PACE_SECONDS, DELAY_SECONDS, SLOW_FROM, STEPS, SHARE = 0.01, 0.04, 14, 40, 2
late = {"data": 0.0, "compute": 0.0, "loop": 0.0}


class Samples(TensorDataset):
    """Samples that take their time."""

    def __getitem__(self, number: Any) -> Any:
        time.sleep(late["data"] / SHARE)
        return super().__getitem__(number)  # type: ignore[no-untyped-call]


class Paced(nn.Module):
    """A model whose forward takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(PACE_SECONDS + late["compute"])
        output: torch.Tensor = self.layer(inputs)
        return output


def train(where: str, slow_rank: int | None, workers: int) -> None:
    """Train with a worker that becomes slow."""
    data = Samples(torch.randn(200, FEATURES), torch.zeros(200, dtype=torch.long))
    training = classification(model=Paced, data=data, batch=SHARE * workers, steps=STEPS)
    with paceline.start(training) as trainer:
        for number, batch in enumerate(trainer, start=1):
            if rank() == slow_rank and number >= SLOW_FROM:
                late[where] = DELAY_SECONDS
            time.sleep(late["loop"])
            trainer.step(batch)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("where", "layout", "sync", "words"),
    [
        ("data", Layout(replicas=3), "allreduce", "it waits for its data"),
        ("compute", Layout(replicas=2), "local:every=5", "its device computes slowly"),
        ("loop", Layout(replicas=2, shards=2), "allreduce", "the code between its steps"),
        pytest.param(
            *("compute", Layout(replicas=2), "allreduce", "its device computes slowly"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("loop", Layout(shards=2), "allreduce", "the code between its steps"),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=[
        "data",
        "replicas that step apart",
        "loop of a replica's shard",
        "compute",
        "loop of a shard",
    ],
)
def test_a_slow_worker_is_named_once_within_20_steps_with_the_reason(
    tmp_path: Path, where: str, layout: Layout, sync: str, words: str
) -> None:
    run = watched_run(tmp_path, layout, SyncSettings.parse(sync))
    run_ranks(train, layout.workers, tmp_path, where, 1, layout.workers, run=run)
    (event,) = found(run)
    assert (event.kind, event.rank) == ("slow", 1)
    assert SLOW_FROM + 10 < event.step < SLOW_FROM + 20
    assert words in event.why
    assert event.times > 2


@pytest.mark.alone
def test_equal_workers_are_not_named(tmp_path: Path) -> None:
    run = watched_run(tmp_path, Layout(replicas=3))
    run_ranks(train, 3, tmp_path, "loop", None, 3, run=run)
    assert found(run) == []


@given(st.lists(st.floats(1e-5, 1000), min_size=1, max_size=50))
def test_the_median_of_a_histogram_is_that_of_the_workers(seconds: list[float]) -> None:
    counted = [0.0] * stragglers._BUCKETS
    for each in seconds:
        counted[stragglers._bucket(each)] += 1
    assert median_seconds(counted) == pytest.approx(statistics.median_low(seconds), rel=0.026)


def test_what_is_longer_than_the_histogram_is_in_its_last_bucket() -> None:
    assert stragglers._bucket(1e9) == stragglers._BUCKETS - 1
    assert stragglers._bucket(0.0) == 0
    assert math.isfinite(median_seconds([0.0] * 5 + [1.0]))


class MadeUpClock(Clock):
    """Says what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.said = dict.fromkeys(PARTS, 0.0)

    def total(self) -> dict[Part, float]:
        return dict(self.said)


class ThreeWorkers(Groups):
    """Two others, whose steps take 10 ms of forward."""

    def sum_later(self, values: torch.Tensor) -> None:
        values[stragglers._bucket(0.01)] += 2
        values[stragglers._BUCKETS + PARTS.index("forward")] += 0.02


def named_with(*phases: tuple[int, dict[Part, float]]) -> list[tuple[int, str]]:
    """When and why worker 1 is named that takes, for so many steps each, 10 ms of forward and
    beside them so many of other parts."""
    clock, named = MadeUpClock(), list[tuple[int, str]]()
    groups = ThreeWorkers(Placement(rank=1, workers=3), torch.device("cpu"), None)
    watch = Stragglers(
        groups, clock, lambda step, _, __, why: named.append((step, why.split(":")[0]))
    )
    step = 0
    for steps, parts in phases:
        for _ in range(steps):
            step += 1
            clock.said["forward"] += 0.01
            for part, milliseconds in parts.items():
                clock.said[part] += milliseconds / 1e3
            watch.stepped(step)
    return named


DATA, COMPUTING = "it waits for its data", "its device computes slowly, or is shared"


def test_it_is_said_again_only_when_it_changes() -> None:
    assert named_with((400, {"data": 20})) == [(16, DATA)]
    assert named_with((400, {"data": 4})) == []
    assert named_with((40, {"data": 20}), (40, {"backward": 20})) == [(16, DATA), (56, COMPUTING)]
    # Slow again after it was as quick as the others, but not while it was nearly so.
    assert named_with((40, {"data": 20}), (16, {"data": 0}), (16, {"data": 20})) == [
        (16, DATA),
        (72, DATA),
    ]
    assert len(named_with((40, {"data": 20}), (16, {"data": 4}), (16, {"data": 20}))) == 1


def test_who_waits_is_not_slow_and_short_bursts_are_nothing() -> None:
    assert named_with((200, {"communication": 50})) == []
    bursts: list[tuple[int, dict[Part, float]]] = [(15, {"data": 20}), (1, {})]
    assert named_with(*bursts * 10) == []
    # Slow by much of its own time, but by little of a step in which all wait for the network.
    assert named_with((200, {"data": 8, "communication": 100})) == []
    assert len(named_with((200, {"data": 8, "communication": 10}))) == 1
