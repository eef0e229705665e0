"""What larger batches cost to a loss, and the critical batch that follows from it.

The samples to a loss grow with the batch B as E (1 + B / C), where C is the critical batch
(McCandlish et al., An empirical model of large-batch training, 2018). Both are fitted to the runs
of each seed. The prediction beside it knows only the gradient noise of the smallest batch.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

import numpy as np

from paceline.learning.critical_batch import samples_times
from paceline.report import RunState
from paceline.report.run.sections.batch import batch_figures
from paceline.specs import (
    BatchCost,
    CriticalBatch,
    Interval,
    LargerBatches,
    PointResult,
    Quality,
    Study,
)
from paceline.specs.measurements.quality import EVALUATED_LOSS, LOSS
from paceline.study.confidence import interval
from paceline.study.points import is_naive
from paceline.study.quality_points import LAST
from paceline.study.study_folder import States, finished

_Curve = list[tuple[float, float]]
"""Samples, and the loss around them."""


def larger_batches(
    study: Study, states: States, points: Sequence[PointResult], quality: Quality
) -> LargerBatches:
    """Return the largest batch that is as good, and the cost of each to a loss that all reach."""
    largest = _largest(study, quality)
    runs = {
        number: {state.job.seed_plus: state for _, state in finished(study, point, states)}
        for number, point in enumerate(study.points)
        if not is_naive(point)
    }
    runs = {number: mine for number, mine in runs.items() if mine}
    curves = {
        number: {seed: _smoothed(state) for seed, state in mine.items()}
        for number, mine in runs.items()
    }
    reached = [curve[-1][1] for mine in curves.values() for curve in mine.values()]
    if not runs.get(quality.base) or not all(map(math.isfinite, reached)):
        return LargerBatches(largest=largest, target_loss=None)
    target = max(reached)
    if any(curve[0][1] <= target for curve in curves[quality.base].values()):
        return LargerBatches(largest=largest, target_loss=None)  # it began with less
    taken = {
        number: {seed: _samples_to(target, curve) for seed, curve in mine.items()}
        for number, mine in curves.items()
    }
    # The last step of a run or epoch may have fewer.
    batch = {number: max(next(iter(mine.values())).samples) for number, mine in runs.items()}
    predicted = _predicted(list(runs[quality.base].values()))
    own = fmean(taken[quality.base].values())

    def cost(number: int) -> BatchCost:
        samples, rate = interval(list(taken[number].values())), points[number].samples_per_second
        times = predicted and samples_times(batch[number], batch[quality.base], predicted)
        return BatchCost(
            point=number,
            batch=batch[number],
            samples=samples,
            steps=_divided(samples, batch[number]),
            seconds=None if rate is None else _divided(samples, rate.value),
            predicted_samples=None if times is None else own * times,
        )

    return LargerBatches(
        largest=largest,
        target_loss=target,
        costs=tuple(map(cost, taken)),
        measured=_fitted(batch, taken),
        predicted=predicted,
    )


def _largest(study: Study, quality: Quality) -> int | None:
    """Return the largest factor up to which all are as good, by the loss that decides."""
    factors = {
        point.batch_times: learned
        for point, learned in zip(study.points, quality.points, strict=True)
        if point.batch_times > 1 and not is_naive(point)
    }
    found = None
    for factor in sorted(factors):
        verdicts = {one.measure: one.verdict for one in factors[factor].comparisons}
        if verdicts.get(EVALUATED_LOSS, verdicts.get(LOSS)) not in ("same", "better"):
            break
        found = factor
    return found


def _smoothed(state: RunState) -> _Curve:
    """Return the mean loss over each tenth of the samples, with the samples at its middle."""
    ends = [0, *accumulate(state.samples)]
    losses = zip(state.loss, state.samples, strict=True)
    sums = [0.0, *accumulate(loss * count for loss, count in losses)]
    width, first = LAST * ends[-1], 0
    found = []
    for last in range(1, len(ends)):
        while ends[last] - ends[first + 1] >= width:
            first += 1
        if ends[last] >= width:
            mean = (sums[last] - sums[first]) / (ends[last] - ends[first])
            found.append(((ends[last] + ends[first]) / 2, mean))
    return found


def _samples_to(target: float, curve: _Curve) -> float:
    """Return the samples after which a smoothed loss is at the target, between two steps."""
    before = curve[0]
    for samples, loss in curve:
        if loss <= target:
            drop = before[1] - loss
            return (
                samples if drop <= 0 else samples - (samples - before[0]) * (target - loss) / drop
            )
        before = (samples, loss)
    raise AssertionError("every run reaches the worst of the final losses")


def _divided(found: Interval, by: float) -> Interval:
    low, high = (None if end is None else end / by for end in (found.low, found.high))
    return Interval(value=found.value / by, low=low, high=high)


def _fitted(batch: dict[int, int], taken: dict[int, dict[int, float]]) -> CriticalBatch | None:
    """Return the critical batch, from the slope of samples over batch for each seed.

    The interval is that of the inverse, which stays bounded where the slope may be zero."""
    seeds = set.intersection(*(set(mine) for mine in taken.values()))
    if len(taken) < 2 or not seeds:
        return None
    batches, inverses = [batch[number] for number in taken], []
    for seed in sorted(seeds):
        samples = [mine[seed] for mine in taken.values()]
        # The least relative errors.
        slope, start = np.polyfit(batches, samples, 1, w=[1 / each for each in samples])
        if start <= 0:
            return None
        inverses.append(float(slope / start))
    found = interval(inverses, 0.90)
    high = found.value if found.high is None else found.high
    if high <= 0:
        return None
    low = found.value if found.low is None else found.low
    return CriticalBatch(
        value=1 / found.value if found.value > 0 else None,
        low=1 / high,
        high=1 / low if low > 0 else None,
    )


def _predicted(base: Sequence[RunState]) -> float | None:
    found = [figures.critical for state in base if (figures := batch_figures(state))]
    known = [each for each in found if each is not None]
    return fmean(known) if known and len(known) == len(base) else None
