"""Equivalence test of two settings: whether a training learns as well, seed by seed.

A seed sets the initial weights and the sample order, so two runs with one seed share most of their
randomness. The test therefore uses the mean of their differences (a paired t test). If they shared
nothing, that would only cost half of the degrees of freedom.

Finding no difference does not prove that there is none. The verdict is "same" if two one-sided
tests (Schuirmann, A comparison of the two one-sided tests procedure and the power approach, 1987)
reject, at 5 % each, a difference as large as the margin: if its 90 % interval lies inside.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from paceline.specs import Comparison, Interval, RunQuality, Verdict
from paceline.specs.measurements.quality import LOSSES
from paceline.study.confidence import interval

FEWEST_SEEDS = 2


def comparisons(
    runs: Sequence[RunQuality], base: Sequence[RunQuality], margin: float, *, failed: bool
) -> tuple[Comparison, ...]:
    """Compare each measure that both have; `margin` is relative to the base's mean. `failed`: some
    runs failed."""
    measures = dict.fromkeys(name for run in runs for name in run.values)
    found = (
        _comparison(name, _by_seed(runs, name), _by_seed(base, name), margin, failed=failed)
        for name in measures
    )
    return tuple(each for each in found if each is not None)


def verdict_of(differences: Sequence[float], margin: float, measure: str) -> Verdict:
    """Return the verdict on a measure, from its differences by seed."""
    if len(differences) < FEWEST_SEEDS:
        return "unknown"
    if max(map(abs, _ends(interval(differences, 0.90)))) <= margin:
        return "same"
    low, high = _ends(interval(differences))
    if low > 0:
        return "worse" if measure in LOSSES else "higher"
    if high < 0:
        return "better" if measure in LOSSES else "lower"
    return "unknown"


def _comparison(
    measure: str,
    values: Mapping[int, float],
    base: Mapping[int, float],
    margin: float,
    *,
    failed: bool,
) -> Comparison | None:
    seeds = sorted(values.keys() & base.keys())
    if not seeds:
        return None
    differences = [values[seed] - base[seed] for seed in seeds]
    allowed = margin * abs(fmean(base.values()))
    return Comparison(
        measure=measure,
        value=interval(list(values.values())),
        base=interval(list(base.values())),
        difference=interval(differences),
        within=interval(differences, 0.90),
        margin=allowed,
        seeds=len(seeds),
        verdict="failed" if failed else verdict_of(differences, allowed, measure),
    )


def _by_seed(runs: Sequence[RunQuality], measure: str) -> dict[int, float]:
    return {
        run.seed_plus: value
        for run in runs
        if math.isfinite(value := run.values.get(measure, math.nan))
    }


def _ends(found: Interval) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high
