"""Quality of each point, from the runs of a quality study."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean

from paceline.report import RunState
from paceline.specs import CurvePoint, Point, PointQuality, Quality, Run, RunQuality, Study
from paceline.specs.measurements.quality import EVALUATED_LOSS, LOSS
from paceline.study.equivalence_test import Family, comparisons
from paceline.study.points import is_naive
from paceline.study.study_folder import States, attempts, finished

LAST = 0.1
"""Fraction of the samples over which the final loss is averaged."""
MOST_STRETCHES = 100


def quality(study: Study, states: States) -> Quality:
    """Return the quality so far; `states`: runs by the name of their repetition."""
    base = base_of(study.points)
    ended = [finished(study, point, states) for point in study.points]
    # A point may train on a few more samples, to fill its last batch.
    end = min((sum(state.samples) for _, state in ended[base]), default=None)
    runs = [[_learned(*each, end) for each in point] for point in ended]
    points = []
    for number, (point, mine) in enumerate(zip(study.points, runs, strict=True)):
        failed = _failed(study, point, states)
        among = Family(max(1, len(study.points) - 1), in_order=_is_ordered(study, point))
        points.append(
            PointQuality(
                runs=tuple(mine),
                curve=curve([state for _, state in ended[number]]),
                comparisons=()
                if number == base
                else comparisons(mine, runs[base], study.margin, failed=failed, among=among),
            )
        )
    return Quality(base=base, margin=study.margin, points=tuple(_in_order(study, points)))


def _is_ordered(study: Study, point: Point) -> bool:
    """Return whether a point belongs to the batches that a batch study tests from the smallest."""
    return study.kind == "batch" and not is_naive(point)


def _in_order(study: Study, points: Sequence[PointQuality]) -> list[PointQuality]:
    """Take the verdict "same" from batches above one that is not the same."""
    found, ended = list(points), set[str]()
    ordered = [n for n, point in enumerate(study.points) if _is_ordered(study, point)]
    for number in sorted(ordered, key=lambda n: study.points[n].batch_times):
        own = [
            one.model_copy(update={"verdict": "unknown"})
            if one.verdict == "same" and one.measure in ended
            else one
            for one in points[number].comparisons
        ]
        ended |= {one.measure for one in own if one.verdict not in ("same", "better")}
        found[number] = points[number].model_copy(update={"comparisons": tuple(own)})
    return found


def base_of(points: Sequence[Point]) -> int:
    """Return the index of the point with the fewest workers and the smallest batch; of several,
    the first."""
    return min(
        range(len(points)), key=lambda number: (points[number].workers, points[number].batch_times)
    )


def mean_between(
    losses: Sequence[float], samples: Sequence[int], begin: float, end: float
) -> float | None:
    """Return the mean loss of the samples between two positions; None if no step has any."""
    ends = list(accumulate(samples))
    weights = [
        max(0.0, min(last, end) - max(last - count, begin))
        for last, count in zip(ends, samples, strict=True)
    ]
    return _mean(losses, weights) if any(weights) else None


def curve(states: Sequence[RunState]) -> tuple[CurvePoint, ...]:
    """Return the loss curve of runs with equal steps, in at most a hundred intervals."""
    if not states:
        return ()
    steps = min(len(state.loss) for state in states)
    ends = [0, *accumulate(states[0].samples[:steps])]
    count = min(MOST_STRETCHES, steps)
    edges = [round(number * steps / count) for number in range(count + 1)]
    found = []
    for first, last in pairwise(edges):
        means = [_mean(state.loss[first:last], state.samples[first:last]) for state in states]
        found.append(
            CurvePoint(samples=ends[last], mean=fmean(means), low=min(means), high=max(means))
        )
    return tuple(found)


def _mean(losses: Sequence[float], weights: Sequence[float]) -> float:
    # A loss with zero weight may be NaN.
    products = (loss * each for loss, each in zip(losses, weights, strict=True) if each)
    return math.fsum(products) / sum(weights)


def _failed(study: Study, point: Point, states: States) -> bool:
    """Return whether all runs of a seed have ended without finishing."""
    return any(
        tried and all(state.over and state.status != "finished" for _, state in tried)
        for tried in attempts(study, point, states)
    )


def _learned(run: Run, state: RunState, end: int | None) -> RunQuality:
    seen = sum(state.samples)
    end = end or seen
    values = {}
    loss = mean_between(state.loss, state.samples, (1 - LAST) * end, end)
    if loss is not None:
        values[LOSS] = loss
    if state.evaluations:
        last = state.evaluations[-1]
        values |= {EVALUATED_LOSS: last.loss, **last.metrics}
    return RunQuality(run=run.path.name, seed_plus=state.job.seed_plus, samples=seen, values=values)
