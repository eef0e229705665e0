"""The report's section on batch and learning rate, from measured gradient noise."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.learning.rules import batch_rule
from paceline.report import ReportedRun, render
from paceline.report.run.learning import learning_of
from paceline.report.run.sections.batch import batch_figures
from paceline.specs import Grew, Noise, RuleApplied, Run
from report.folders import BATCH, empty_run, finished, say, started, steps


def _run(parent: Path, *, scale: float, noise: float, measured: int = 40) -> Run:
    """A run whose noise scale is known; `noise`: standard deviation of the signal's estimates."""
    chance = random.Random(1)
    run = empty_run(parent)
    say(run, started(0, steps=10 * measured))
    say(run, steps(1, [1.0] * 10 * measured))
    say(
        run,
        Noise(
            time=time.time(),
            node="n1",
            generation=0,
            steps=[1 + 10 * number for number in range(measured)],
            samples=[BATCH] * measured,
            variance=[chance.gauss(scale, scale / 20) for _ in range(measured)],
            signal=[chance.gauss(1, noise) for _ in range(measured)],
        ),
    )
    say(run, finished(10 * measured))
    return run


def test_it_says_what_a_larger_batch_would_take(tmp_path: Path) -> None:
    run = ReportedRun.read(_run(tmp_path, scale=960, noise=0.1))
    found = batch_figures(run.state)
    assert found is not None
    assert found.critical == pytest.approx(960, rel=0.1)
    assert found.batch == BATCH
    assert [window.step for window in found.windows] == [91, 191, 291, 391]
    assert found.windows[-1].samples == 391 * BATCH
    page = render(run.run)
    assert "Batch and learning rate" in page
    assert "critical batch of 9" in page
    assert "Samples to the same loss" in page
    assert run.to_dict()["gradient_noise"]["critical"] == found.critical
    learning = learning_of(run.run, run.state)
    assert learning is not None
    assert learning.critical == found.critical
    assert learning.critical is not None
    assert learning.high is not None
    assert learning.low < learning.critical < learning.high
    assert [each.samples for each in learning.growth] == [each.samples for each in found.windows]


def test_it_shows_the_rule_beside_the_rates_used(tmp_path: Path) -> None:
    """The rule was printed once, and no report had it."""
    run = empty_run(tmp_path)
    say(run, started(0, steps=625))
    rule = batch_rule("square root", 256, 16)
    common: dict[str, Any] = {"time": time.time(), "node": "n1", "generation": 0}
    applied = {"optimizer": "AdamW", "rates": [0.004], "steps": 625, "tuned_steps": 10_000}
    say(run, RuleApplied(**common, **applied, rule=rule))
    say(run, steps(1, [1.0] * 625))
    say(run, finished(625))
    read = ReportedRun.read(run)
    assert read.to_dict()["gradient_noise"]["rules"][0]["rule"]["rate_times"] == 4
    page = render(run)
    assert "AdamW: batch 256, tuned at 16: learning rate × 4, betas to the power of 16" in page
    assert "Learning rate 0.004 instead of 0.001." in page


def test_a_signal_lost_in_noise_gives_a_lower_bound(tmp_path: Path) -> None:
    run = ReportedRun.read(_run(tmp_path, scale=960, noise=30))
    found = batch_figures(run.state)
    assert found is not None
    assert found.critical is None
    assert 0 < found.at_least < 960
    assert "is at least" in render(run.run)


def test_few_measured_steps_say_nothing(tmp_path: Path) -> None:
    run = ReportedRun.read(_run(tmp_path, scale=960, noise=0.1, measured=9))
    assert batch_figures(run.state) is None
    assert "Batch and learning rate" not in render(run.run)


def test_a_batch_that_grew_is_told_with_the_steps_that_are_left(tmp_path: Path) -> None:
    run = _run(tmp_path, scale=960, noise=0.1)
    event = {"step": 200, "samples": 200 * BATCH, "batch": 2 * BATCH, "steps": 300}
    say(run, Grew(time=time.time(), node="n1", generation=0, **event))
    reported = ReportedRun.read(run)
    assert reported.state.planned_steps == 300
    assert reported.to_dict()["gradient_noise"]["grew"] == [
        {"step": 200, "samples": 200 * BATCH, "batch": 2 * BATCH}
    ]
    assert f"the batch grew to {2 * BATCH:,} after {200 * BATCH:,} samples" in render(run)


def test_noise_of_changes_is_named_and_not_mixed_with_that_of_gradients(tmp_path: Path) -> None:
    run = _run(tmp_path, scale=960, noise=0.1)
    file = next(run.events.iterdir())
    gradients = file.read_text()
    # A run with local steps has other units, as has the part of a run that was resumed with them.
    changes = gradients.replace('"of_changes":false', '"of_changes":true')
    assert changes != gradients
    file.write_text(changes)
    found = batch_figures(ReportedRun.read(run).state)
    assert found is not None
    assert found.of_changes
    assert "of the replicas&#39; changes between rounds" in render(run)
    other = Noise(
        time=time.time(),
        node="n1",
        generation=0,
        steps=[401],
        samples=[1],
        variance=[1],
        signal=[1],
    )
    say(run, other)
    found = batch_figures(ReportedRun.read(run).state)
    assert found is None, "one step with gradients is too few"
