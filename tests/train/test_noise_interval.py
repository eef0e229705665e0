"""Measurements of the gradient noise become rare where they would cost more than 1 %."""

import time
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.specs import Layout
from paceline.train.gradients import noise_interval
from paceline.train.gradients.noise_interval import TIMED, WARM_UP, NoiseInterval
from ranks import run_ranks
from train.trainings import classification

STEPS = 10 * (WARM_UP + TIMED + 3)


def _interval(changes: dict[str, Any]) -> list[int]:
    """Steps between measurements, after each step."""
    noise_interval.LARGEST_COST = 1e-9  # whatever this machine takes is more
    training = classification(steps=10_000, **changes)
    found = []
    with paceline.start(training) as trainer:
        for batch in trainer:
            trainer.step(batch)
            found.append(trainer._stepper._noise.interval.steps)
            if len(found) == STEPS:
                break
    return found


def test_all_workers_measure_less_often_from_the_same_step_on(tmp_path: Path) -> None:
    # Before, every tenth step was measured, whatever it cost: 3 % of steps of 3 ms.
    one, other = run_ranks(_interval, 2, tmp_path, {}, layout=Layout(replicas=2))
    assert one == other
    assert one[0] == 10
    assert one[-1] == 100  # a hundred measurements are left


def test_a_growth_by_noise_does_not_depend_on_time(tmp_path: Path) -> None:
    changes = {"batch": paceline.grow(8, to=16)}
    for found in run_ranks(_interval, 2, tmp_path, changes, layout=Layout(replicas=2)):
        assert set(found) == {10}


@pytest.mark.parametrize(("spent", "steps"), [(0.05, 10), (0.25, 40), (5.0, 670), (500.0, 1000)])
def test_worker_0_finds_the_interval(
    spent: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of a second, in a training of 100,000."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    decides = NoiseInterval(None, of=100_000, adapts=True, decides=lambda: True)
    joins = NoiseInterval(None, of=100_000, adapts=True, decides=lambda: False)
    for step in range(300):
        now += 1.0
        due = decides.is_due(step)
        assert joins.is_due(step) == due
        if due:
            decides.spent(spent)
            proposed = decides.proposal(step) + joins.proposal(step)
            for each in (decides, joins):
                each.take(proposed)
    assert (decides.steps, joins.steps) == (steps, steps)
    decides.begin()
    assert decides.steps == 10
    assert not NoiseInterval(7, of=100_000, adapts=True, decides=lambda: True).adapts
