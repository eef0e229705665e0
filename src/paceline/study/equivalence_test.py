"""Equivalence test of two settings: whether a training learns as well, seed by seed.

A seed sets the initial weights and the sample order, so two runs with one seed share most of their
randomness. The test therefore uses the mean of their differences (a paired t test). If they shared
nothing, that would only cost half of the degrees of freedom.

Finding no difference does not prove that there is none. The verdict is "same" if two one-sided
tests (Schuirmann, A comparison of the two one-sided tests procedure and the power approach, 1987)
reject, at 5 % each, a difference as large as the margin: if its 90 % interval lies inside.

Many comparisons find something by chance. So each of n gets an n-th of the 5 % (Bonferroni), except
for the verdict "same" where the comparisons have an order and end with the first that is not the
same: then no share is needed (Maurer et al., Multiple comparisons in drug clinical trials, 1995).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from paceline.specs import Comparison, Interval, RunQuality, Verdict
from paceline.specs.measurements.quality import LOSSES
from paceline.study.confidence import interval, probability, quantile

FEWEST_SEEDS, MOST_SEEDS = 2, 1_000
POWER = 0.8
"""Chance of the verdict "same" for two settings without a difference that is aimed at."""


@dataclass(frozen=True)
class Family:
    """The comparisons that are made together."""

    count: int = 1
    in_order: bool = False
    """Whether they have an order, and none is the same after one that is not."""

    @property
    def same_confidence(self) -> float:
        """Confidence of the interval that must lie inside the margin."""
        return 0.90 if self.in_order else 1 - 0.10 / self.count

    @property
    def different_confidence(self) -> float:
        """Confidence of the interval that must leave out zero."""
        return 1 - 0.05 / self.count


ALONE = Family()


def comparisons(
    runs: Sequence[RunQuality],
    base: Sequence[RunQuality],
    margin: float,
    *,
    failed: bool,
    among: Family = ALONE,
) -> tuple[Comparison, ...]:
    """Compare each measure that both have; `margin` is relative to the base's mean. `failed`: some
    runs failed."""
    measures = dict.fromkeys(name for run in runs for name in run.values)
    found = (
        _comparison(name, _by_seed(runs, name), _by_seed(base, name), margin, failed, among)
        for name in measures
    )
    return tuple(each for each in found if each is not None)


def verdict_of(
    differences: Sequence[float], margin: float, measure: str, among: Family = ALONE
) -> Verdict:
    """Return the verdict on a measure, from its differences by seed."""
    if len(differences) < FEWEST_SEEDS:
        return "unknown"
    if max(map(abs, _ends(interval(differences, among.same_confidence)))) <= margin:
        return "same"
    low, high = _ends(interval(differences, among.different_confidence))
    if low > 0:
        return "worse" if measure in LOSSES else "higher"
    if high < 0:
        return "better" if measure in LOSSES else "lower"
    return "unknown"


def seeds_needed(spread: float, margin: float, among: Family = ALONE) -> int | None:
    """Return the seeds with which two settings without a difference are most likely the same.

    `spread`: standard deviation of the differences by seed. None: more than a thousand."""
    if not spread:
        return FEWEST_SEEDS
    for seeds in range(FEWEST_SEEDS, MOST_SEEDS + 1):
        room = margin / spread * math.sqrt(seeds)
        beyond = room - quantile((1 + among.same_confidence) / 2, seeds - 1)
        if 2 * probability(beyond, seeds - 1) - 1 >= POWER:
            return seeds
    return None


def _comparison(
    measure: str,
    values: Mapping[int, float],
    base: Mapping[int, float],
    margin: float,
    failed: bool,
    among: Family,
) -> Comparison | None:
    seeds = sorted(values.keys() & base.keys())
    if not seeds:
        return None
    differences = [values[seed] - base[seed] for seed in seeds]
    allowed = margin * abs(fmean(base.values()))
    spread = stdev(differences) if len(seeds) > 1 else None
    return Comparison(
        measure=measure,
        value=interval(list(values.values())),
        base=interval(list(base.values())),
        difference=interval(differences),
        within=interval(differences, among.same_confidence),
        margin=allowed,
        seeds=len(seeds),
        spread=spread,
        seeds_needed=None if spread is None else seeds_needed(spread, allowed, among),
        verdict="failed" if failed else verdict_of(differences, allowed, measure, among),
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
