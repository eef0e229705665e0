"""Whether a training learns as well: how often the verdict is wrong, where the truth is known."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.report import RunState
from paceline.specs import (
    Ended,
    Evaluated,
    Finished,
    Job,
    Layout,
    Plan,
    Point,
    Run,
    RunQuality,
    Steps,
    Study,
    Verdict,
)
from paceline.study.equivalence_test import comparisons, verdict_of
from paceline.study.points import key
from paceline.study.quality_points import base_of, curve, mean_between, quality
from paceline.study.study_folder import States

TRIALS = 1500
# Three times the standard deviation of a share of 5 % in so many trials.
BAND = 3 * (0.05 * 0.95 / TRIALS) ** 0.5
SEEDS = [2, 5, 10]
DIFFERENCES = st.lists(st.floats(-5, 5), min_size=2, max_size=8)


def verdicts(mean: float, spread: float, margin: float, seeds: int) -> dict[Verdict, float]:
    """Their shares, where differences are drawn from a normal distribution."""
    drawn = np.random.default_rng(seeds).normal(mean, spread, (TRIALS, seeds))
    found = [verdict_of(row.tolist(), margin, "loss") for row in drawn]
    return {each: found.count(each) / TRIALS for each in set(found)}


def learned(*losses: float, seed: int = 0, measure: str = "loss") -> list[RunQuality]:
    return [
        RunQuality(run=f"r{number}", seed_plus=seed + number, samples=100, values={measure: loss})
        for number, loss in enumerate(losses)
    ]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_what_is_equal_is_seldom_called_worse(seeds: int, margin: float) -> None:
    found = verdicts(0, 1, margin, seeds)
    assert found.get("worse", 0) <= 0.025 + BAND
    assert found.get("worse", 0) + found.get("better", 0) <= 0.05 + BAND


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("spread", [0.02, 0.2])
@pytest.mark.parametrize("mean", [0.2, -0.2])
def test_what_differs_by_the_margin_is_seldom_called_the_same(
    seeds: int, spread: float, mean: float
) -> None:
    assert verdicts(mean, spread, 0.2, seeds).get("same", 0) <= 0.05 + BAND


def test_it_finds_what_is_there() -> None:
    assert verdicts(3, 1, 0.1, 5)["worse"] > 0.97
    assert verdicts(-3, 1, 0.1, 5)["better"] > 0.97
    assert verdicts(0, 0.1, 0.5, 5)["same"] > 0.97
    # As wide a spread as this leaves five seeds without an answer, which is said.
    assert verdicts(0, 1, 0.5, 5)["unknown"] > 0.8


@given(DIFFERENCES, st.floats(0, 2))
def test_worse_is_better_the_other_way_round(differences: list[float], margin: float) -> None:
    turned: dict[Verdict, Verdict] = {"worse": "better", "better": "worse"}
    one = verdict_of(differences, margin, "loss")
    other = verdict_of([-each for each in differences], margin, "loss")
    assert other == turned.get(one, one)


@given(DIFFERENCES, st.floats(0, 2), st.floats(0, 2))
def test_a_wider_margin_takes_no_sameness_away(
    differences: list[float], margin: float, more: float
) -> None:
    if verdict_of(differences, margin, "loss") == "same":
        assert verdict_of(differences, margin + more, "loss") == "same"


def test_what_seeds_have_in_common_does_not_blur() -> None:
    base = [1.0, 2.0, 3.0, 4.0, 5.0]
    (found,) = comparisons(
        learned(*(each + 0.1 for each in base)), learned(*base), 0.01, failed=False
    )
    assert found.verdict == "worse"
    assert found.difference.value == pytest.approx(0.1)
    assert found.margin == pytest.approx(0.03)
    assert found.seeds == 5


def test_only_seeds_that_both_have_are_compared() -> None:
    base = learned(1.0, 2.0, 3.0)
    (found,) = comparisons(learned(2.0, 3.0, 9.0, seed=1), base, 0.01, failed=False)
    assert found.seeds == 2
    assert (found.verdict, found.difference.value) == ("same", 0)
    assert not comparisons(learned(2.0, seed=7), base, 0.01, failed=False)


def test_one_seed_says_nothing() -> None:
    (found,) = comparisons(learned(9.0), learned(1.0), 0.01, failed=False)
    assert found.verdict == "unknown"
    assert found.difference.low is None


def test_nobody_knows_whether_more_of_a_metric_is_better() -> None:
    base, more = [0.9, 0.91, 0.9], [0.95, 0.96, 0.95]
    (found,) = comparisons(
        learned(*more, measure="accuracy"), learned(*base, measure="accuracy"), 0.01, failed=False
    )
    assert found.verdict == "higher"


def test_those_that_did_not_fail_would_flatter() -> None:
    same = learned(1.0, 1.0, 1.0)
    (found,) = comparisons(same, same, 0.01, failed=True)
    assert found.verdict == "failed"


def test_a_mean_over_the_last_samples() -> None:
    assert mean_between([4.0, 2.0, 1.0], [50, 30, 20], 90, 100) == 1
    assert mean_between([4.0, 2.0, 1.0], [50, 30, 20], 70, 100) == pytest.approx(4 / 3)
    # Of a large batch the part that counts.
    assert mean_between([4.0, 1.0], [95, 5], 90, 100) == 2.5
    assert mean_between([float("nan"), 1.0], [80, 20], 90, 100) == 1
    assert mean_between([1.0], [10], 90, 100) is None


def test_the_base_has_the_fewest_workers_and_the_smallest_batch() -> None:
    local = {"sync": "local:every=8"}
    points = (
        Point(devices_per_node=4),
        Point(batch_times=8),
        Point(varied=local),
        Point(),
    )
    assert base_of(points) == 2


def state_of(
    run: str, seed_plus: int, losses: list[float], samples: int, *, ended: int | None = 0
) -> tuple[Run, RunState]:
    job = Job(name=run, folder=Path("/"), python=Path("/bin/python"), seed_plus=seed_plus)
    state = RunState(job, Plan(layout=Layout()))
    count = len(losses)
    stamp = {"time": 1.0, "node": "here"}
    steps = Steps(first=1, loss=losses, seconds=[0.1] * count, samples=[samples] * count, **stamp)
    state.take(steps, 1.0)
    state.take(Evaluated(step=count, samples=9, loss=0.5, metrics={"hits": 0.9}, **stamp), 1.0)
    if ended == 0:
        done = {"outcome": "finished", "steps": count, "samples": count * samples, "seconds": 1.0}
        state.take(Finished.model_validate(done | stamp), 1.0)
    if ended is not None:
        state.take(Ended(exit_code=ended, **stamp), 1.0)
    return Run(Path("/runs") / run), state


def study_of(points: tuple[Point, ...], repeat: int) -> Study:
    return Study(
        name="digits",
        train=Path("/train.py"),
        kind="quality",
        points=points,
        repeat=repeat,
        cluster="here",
    )


def test_from_runs_to_verdicts() -> None:
    one, two = Point(), Point(devices_per_node=2, batch_times=2)
    states: States = {}
    for number, luck in enumerate([0.0, 0.5, 0.25]):
        name = f"r{number + 1}"
        falling = [5 - 0.4 * step + luck for step in range(10)]
        states[f"{key(one)}-{name}"] = [state_of(f"1-{name}", number, falling, 10)]
        worse = [5 - 0.4 * step + luck + 1 for step in range(1, 10, 2)]
        states[f"{key(two)}-{name}"] = [state_of(f"2-{name}", number, worse, 20)]
    study = study_of((one, two), 3)
    found = quality(study, states)
    base, other = found.points
    assert found.base == 0
    assert not base.comparisons
    assert [run.seed_plus for run in base.runs] == [0, 1, 2]
    assert base.runs[0].values == {
        "loss": pytest.approx(5 - 0.4 * 9),
        "evaluated loss": 0.5,
        "hits": 0.9,
    }
    loss, evaluated, hits = other.comparisons
    assert (loss.verdict, loss.seeds) == ("worse", 3)
    assert loss.difference.value == pytest.approx(1)
    assert (evaluated.verdict, hits.verdict) == ("same", "same")
    # Curves reach from the luckiest seed to the other end.
    last = other.curve[-1]
    assert last.samples == 100
    assert last.high - last.low == pytest.approx(0.5)
    # A run that was cut off and taken again is no failure; one that failed is.
    again = states[f"{key(two)}-r2"]
    again.insert(0, state_of("2-r2-killed", 1, [5.0], 20, ended=None))
    assert quality(study, states).points[1].comparisons == other.comparisons
    again[:] = [state_of("2-r2-failed", 1, [5.0], 20, ended=1)]
    verdicts = [each.verdict for each in quality(study, states).points[1].comparisons]
    assert verdicts == ["failed"] * 3
    assert quality(study, {}).points[0].curve == ()


def test_long_curves_are_drawn_in_stretches() -> None:
    losses = [float(1000 - step) for step in range(1000)]
    _, state = state_of("long", 0, losses, 4)
    drawn = curve([state])
    assert len(drawn) == 100
    assert drawn[-1].samples == 4000
    assert drawn[0].mean == pytest.approx(sum(losses[:10]) / 10)
