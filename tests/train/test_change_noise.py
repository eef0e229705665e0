"""Local steps measure the noise of the changes that rounds average; before, they measured none."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.learning.noise_scale import momentum_share, variance_and_signal
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, Noise, Run, SyncSettings, event_adapter
from paceline.sync.buckets import LocalParameter, even_buckets
from paceline.sync.modes._local_steps import LocalSteps
from ranks import run_ranks
from sync.simulated import Replicas, planned
from train.trainings import CLASSES, FEATURES, classification

SETTINGS: dict[str, Any] = {
    "optimizer": partial(torch.optim.SGD, lr=0.05),
    "samples": 60,
    "batch": 24,
    "steps": 9,
    "noise_every": 1,
}
"""The third batch of an epoch has 12 samples."""
Measured = list[tuple[int, float, float, float]]
"""Last step of a round, samples of a step, variance and signal."""


def _measured(changes: dict[str, Any]) -> Measured:
    with paceline.start(classification(**SETTINGS | changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    folder = run_folder()
    assert folder is not None
    found: Measured = []
    for file in Run(folder).events.iterdir():
        for event in map(event_adapter.validate_json, file.read_text().splitlines()):
            if isinstance(event, Noise):
                found += zip(event.steps, event.samples, event.variance, event.signal, strict=True)
    return found


def _on_workers(layout: Layout, folder: Path, sync: str, **changes: Any) -> Measured:
    run = planned(folder, layout.workers, SyncSettings.parse(sync), layout)
    found: Measured = run_ranks(_measured, layout.workers, folder, changes, run=run)[0]
    return found


def _by_hand(sync: LocalSteps, count: int, **changes: Any) -> Measured:
    """Train replicas in one process, and measure from the changes of each."""
    replicas = Replicas(count, **SETTINGS | changes)
    sizes = _sizes(replicas, sync.fragments)
    anchors = list(torch.split(replicas.weights()[0], sizes))
    in_flight: dict[int, list[torch.Tensor]] = {}
    squares, mean_squares = [0.0] * len(sizes), [0.0] * len(sizes)
    rounds, found = [0] * len(sizes), []

    def land(number: int, step: int) -> None:
        launched = torch.stack(in_flight.pop(number))
        changes = anchors[number] - launched
        mean = changes.mean(0)
        squares[number], mean_squares[number] = float((changes**2).sum()), float(mean @ mean)
        anchors[number] = anchors[number] - sync.outer[0] * mean
        rows = [list(torch.split(row, sizes)) for row in replicas.weights()]
        for row, began in zip(rows, launched, strict=True):
            row[number] = anchors[number] + row[number] - began
        replicas.set_weights([torch.cat(row) for row in rows])
        if number == len(sizes) - 1:
            batches = [24 if each % 3 else 12 for each in range(step - sync.every + 1, step + 1)]
            inverse = sum(1 / each for each in batches) / sync.every
            weight = sync.every / inverse
            noise = variance_and_signal(sum(squares) / count, sum(mean_squares), count, weight)
            found.append((step, 1 / inverse, *noise))

    for step in range(1, SETTINGS["steps"] + 1):
        replicas.gradients(step)
        replicas.update()
        for number in range(len(sizes)):
            offset = number * sync.every // len(sizes)
            if number in in_flight and step == rounds[number] + sync.overlap:
                land(number, rounds[number])
            if (step - offset) % sync.every == 0 and step > offset:
                in_flight[number] = [torch.split(row, sizes)[number] for row in replicas.weights()]
                rounds[number] = step
                if not sync.overlap:
                    land(number, step)
    return found


def blocks() -> nn.Module:
    inside = (nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(2))
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.Sequential(*inside), nn.Linear(32, CLASSES))


def _sizes(replicas: Replicas, fragments: int) -> list[int]:
    named = replicas.models[0].named_parameters()
    parameters = [LocalParameter(name, each, each.detach()) for name, each in named]
    return [len(bucket.weights()) for bucket in even_buckets(parameters, fragments)]


def _check_equal(found: Measured, expected: Measured, rel: float = 1e-3) -> None:
    assert [row[0] for row in found] == [row[0] for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        assert row[1:3] == pytest.approx(wanted[1:3], rel=rel)
        assert row[3] == pytest.approx(wanted[3], rel=rel, abs=rel * wanted[2] / wanted[1])


@pytest.mark.parametrize(
    ("sync", "layout"),
    [
        pytest.param("local:every=2", Layout(replicas=2), id="local"),
        pytest.param(
            "diloco:every=3,outer_momentum=0,overlap=1",
            Layout(replicas=2),
            id="overlap",
            marks=pytest.mark.nightly,
        ),
        pytest.param("local:every=4,fragments=2,overlap=3", Layout(replicas=2), id="fragments"),
        pytest.param(
            "local:every=2", Layout(replicas=2, shards=2), id="shards", marks=pytest.mark.nightly
        ),
        pytest.param(
            "local:every=2", Layout(replicas=3), id="3 replicas", marks=pytest.mark.nightly
        ),
    ],
)
def test_rounds_measure_the_changes_of_replicas(sync: str, layout: Layout, tmp_path: Path) -> None:
    expected = _by_hand(LocalSteps.parse(sync), layout.replicas)
    assert expected
    _check_equal(_on_workers(layout, tmp_path, sync), expected)


@pytest.mark.parametrize(
    ("compress", "layout"),
    [
        pytest.param(
            "none",
            Layout(replicas=2, speeds=(1.0, 2.0)),
            id="unequal parts",
            marks=pytest.mark.nightly,
        ),
        pytest.param("int8", Layout(replicas=2), id="int8"),
        pytest.param("none", Layout(replicas=2, tensor=2), id="slices", marks=pytest.mark.nightly),
        pytest.param(
            "none",
            Layout(replicas=2, pipeline=2, micro_batch=4),
            id="stages",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_change_of_one_step_has_the_noise_of_gradients(
    compress: str, layout: Layout, tmp_path: Path
) -> None:
    changes = {"model": blocks, "steps": 4}
    sync = f"local:every=1,compress={compress}"
    found = _on_workers(layout, tmp_path / "local", sync, **changes)
    # One micro-batch: the parts are those of the replicas.
    plain = Layout(replicas=2, speeds=layout.speeds)
    expected = _on_workers(plain, tmp_path / "plain", "allreduce", **changes)
    in_gradients = [
        (step, samples, variance / 0.05**2, signal / 0.05**2)
        for step, samples, variance, signal in found
    ]
    _check_equal(in_gradients, expected, rel=0.02)


def test_what_rounds_cannot_tell_is_not_measured(tmp_path: Path) -> None:
    assert not _on_workers(Layout(replicas=2), tmp_path, "sparseloco:every=2,keep=0.1")


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 4, 50])
def test_momentum_moves_noise_to_other_rounds(momentum: float, steps: int) -> None:
    # A gradient moves the weights by momentum^k after k steps: add up what falls into the round.
    late = [sum(momentum**k for k in range(steps - each)) for each in range(steps)]
    early = [sum(momentum ** (k + each) for k in range(steps)) for each in range(1, 400)]
    noise = sum(each**2 for each in (*late, *early))
    all_of_it = steps / (1 - momentum) ** 2
    assert momentum_share(momentum, steps) == pytest.approx(noise / all_of_it)
