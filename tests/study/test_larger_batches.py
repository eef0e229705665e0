"""A batch study where the truth is known: which batch is as good, and what a loss costs."""

from pathlib import Path

import numpy as np
import pytest

from paceline.report import RunState
from paceline.report.studies.batch_words import batch_findings
from paceline.report.studies.quality_page import render_quality
from paceline.specs import (
    Ended,
    Finished,
    Job,
    LargerBatches,
    Layout,
    Noise,
    Plan,
    Point,
    Run,
    Steps,
    Study,
    StudyResult,
)
from paceline.study.equivalence_test import Family, seeds_needed, verdict_of
from paceline.study.larger_batches import larger_batches
from paceline.study.measured_points import point_results
from paceline.study.points import key, points, with_larger_batches
from paceline.study.quality_points import quality
from paceline.study.scaling_laws import with_scaling
from paceline.study.study_folder import States

BATCH, SAMPLES, CRITICAL, SEEDS = 16, 32_768, 400.0, 5
STAMP = {"time": 1.0, "node": "here"}


def trained(point: Point, seed: int, spread: float, worse: dict[int, float]) -> RunState:
    """A run whose loss falls with its samples by the law of the critical batch."""
    batch = BATCH * point.batch_times
    job = Job(name="p", train=Path("t.py"), seed_plus=seed, folder=Path(), python=Path())
    state = RunState(job, Plan(layout=Layout()))
    count = SAMPLES // batch
    progress = np.arange(1, count + 1) * batch / (1 + batch / CRITICAL)
    luck = 1 + np.random.default_rng((seed, batch)).normal(0, spread)
    loss = luck * (100 / (100 + progress)) ** 0.3 * (1 + worse.get(point.batch_times, 0.0))
    steps = list(range(1, count + 1))
    state.take(
        Steps(first=1, loss=loss.tolist(), seconds=[0.1] * count, samples=[batch] * count, **STAMP),
        1.0,
    )
    drawn = np.random.default_rng(seed)
    state.take(
        Noise(
            steps=steps,
            samples=[float(batch)] * count,
            variance=drawn.normal(CRITICAL, 20, count).tolist(),
            signal=drawn.normal(1, 0.5, count).tolist(),
            **STAMP,
        ),
        1.0,
    )
    done = {"outcome": "finished", "steps": count, "samples": SAMPLES, "seconds": 1.0}
    state.take(Finished.model_validate(done | STAMP), 1.0)
    state.take(Ended(exit_code=0, **STAMP), 1.0)
    return state


def studied(
    spread: float = 0.0005, worse: dict[int, float] | None = None, rates: tuple[str, ...] = ()
) -> StudyResult:
    varying = {"batch": ["1", "2", "4", "8", "16"], **({"lr": list(rates)} if rates else {})}
    study = Study(
        name="digits",
        train=Path("/train.py"),
        kind="batch",
        points=points([1], [1], "batch", with_larger_batches(varying)),
        repeat=SEEDS,
        margin=0.08,
        cluster="here",
    )
    states: States = {
        f"{key(point)}-r{seed + 1}": [
            (Run(Path(f"/runs/{key(point)}-{seed}")), trained(point, seed, spread, worse or {}))
        ]
        for point in study.points
        for seed in range(SEEDS)
    }
    compared, measured = quality(study, states), with_scaling(point_results(study, states))
    return StudyResult(
        study=study,
        points=measured,
        quality=compared,
        larger_batches=larger_batches(study, states, measured, compared),
    )


def of(result: StudyResult) -> LargerBatches:
    assert result.larger_batches
    return result.larger_batches


def test_the_critical_batch_is_found() -> None:
    found = of(studied())
    assert found.measured
    assert found.measured.value == pytest.approx(CRITICAL, rel=0.1)
    assert found.predicted == pytest.approx(CRITICAL, rel=0.1)
    for each in found.costs:
        assert each.predicted_samples == pytest.approx(each.samples.value, rel=0.1)
        assert each.steps.value == pytest.approx(each.samples.value / each.batch)


def test_the_largest_batch_that_is_as_good() -> None:
    # Without more, the loss rises by the law itself: 1.5 % with 32, 7.4 % with 128 samples.
    result = studied(worse={8: 0.1})
    verdicts = [
        one.verdict
        for each in (result.quality.points if result.quality else ())
        for one in each.comparisons
    ]
    assert verdicts[:3] == ["same", "same", "worse"]
    assert of(result).largest == 4
    assert "Up to 4 times the batch" in batch_findings(result)[0]


def test_none_is_the_same_above_one_that_is_not() -> None:
    result = studied(worse={4: 0.5})
    assert of(result).largest == 2
    assert result.quality
    eight = result.quality.points[3].comparisons[0]
    assert verdict_of([eight.difference.value] * 2, eight.margin, "loss") == "same"
    assert eight.verdict == "unknown"


def test_the_naive_rate_is_beside_and_decides_nothing() -> None:
    result = studied(rates=("naive", "scaled"))
    assert [point.varied.get("lr") for point in result.study.points].count("naive") == 4
    assert len(of(result).costs) == 5


def test_a_run_that_diverged_has_no_target() -> None:
    found = of(studied(worse={16: float("nan")}))
    assert found.target_loss is None
    assert not found.costs


def test_a_run_that_ends_above_the_beginning_has_no_target() -> None:
    """From a checkpoint, every run "reached" such a loss with its first samples."""
    assert of(studied(worse={16: 50.0})).target_loss is None


def test_the_page_and_the_words() -> None:
    result = studied(spread=0.06)
    words = " ".join(batch_findings(result))
    assert "repeat with --seeds" in words
    page = render_quality(result)
    assert "Cost to a loss" in page
    assert "Samples to a loss" in page


@pytest.mark.parametrize(("spread", "seeds"), [(0.25, 3), (0.5, 4), (0.75, 7), (1, 11), (1.5, 21)])
def test_the_seeds_for_four_verdicts_in_five(spread: float, seeds: int) -> None:
    assert seeds_needed(spread, 1.0) == seeds
    drawn = np.random.default_rng(0).normal(0, spread, (400, seeds))
    same = [verdict_of(row.tolist(), 1.0, "loss") for row in drawn].count("same")
    assert same / 400 > 0.74


@pytest.mark.parametrize("in_order", [False, True])
def test_many_comparisons_are_seldom_wrong(in_order: bool) -> None:
    among, trials = Family(8, in_order=in_order), 400
    drawn = np.random.default_rng(1).normal(0, 1, (trials, 8, 5))
    wrong = sum(
        any(verdict_of(row.tolist(), 0.0, "loss", among) != "unknown" for row in family)
        for family in drawn
    )
    assert wrong / trials < 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5
