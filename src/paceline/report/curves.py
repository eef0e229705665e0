"""Columns of steps made small enough to draw, without hiding what they hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

MOST_POINTS = 1000
STRETCHES = 250
"""Of a longer run; more would lie closer than a line is thick."""
Row = dict[str, float | int | None]


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps: each step, or stretches of steps with their extremes.

    Rows hold `step` and `last` (of the stretch), `samples` (so far), `mean`, `low`, `high`, and
    `trend`: the thick line. What is not finite is `None` and leaves a gap.
    """

    rows: list[Row]
    steps_per_row: int
    trend_steps: int
    """How many steps around it a point of the thick line stands for."""


@dataclass(frozen=True)
class Histogram:
    """How many steps took how long; all steps are counted."""

    rows: list[Row]
    """`low`, `high` (the bar's edges) and `steps`."""
    steps_beyond: int
    """Steps longer than the last bar's edge, not drawn."""


def curve(
    step: Sequence[int],
    values: Sequence[float],
    samples: Sequence[int],
    weights: Sequence[float] | None = None,
) -> Curve:
    """A column over its steps; a stretch's mean is weighted, by a rate's seconds for example."""
    count = len(step)
    width = 1 if count <= MOST_POINTS else math.ceil(count / STRETCHES)
    reach = count // 40 if width == 1 else 0
    weight = weights if weights is not None else [1.0] * count
    rows: list[Row] = []
    seen = 0
    for start in range(0, count, width):
        stop = min(start + width, count)
        seen += sum(samples[start:stop])
        part = [value for value in values[start:stop] if math.isfinite(value)]
        mean = _mean(values[start:stop], weight[start:stop])
        rows.append(
            {
                "step": step[start],
                "last": step[stop - 1],
                "samples": seen,
                "mean": mean,
                "low": _rounded(min(part, default=None)),
                "high": _rounded(max(part, default=None)),
                # Where the step itself has no value the thick line has its gap, too.
                "trend": mean if mean is None or not reach else _median(values, start, reach),
            }
        )
    return Curve(rows, width, 2 * reach + 1)


def histogram(values: Sequence[float]) -> Histogram:
    """The distribution; a few far longer steps are counted but not drawn, lest they squeeze it."""
    if not values:
        return Histogram([], 0)
    low, edge = min(values), long_edge(values)
    if edge - low < 1e-9:
        # All steps took the same time: one bar, with room beside it.
        low, edge = 0.9 * low, 1.1 * low + 1e-9
    # Rice's rule, within what can be told apart on a screen.
    bars = min(40, max(10, math.ceil(2 * len(values) ** (1 / 3))))
    width = (edge - low) / bars
    counts = [0] * bars
    beyond = 0
    for value in values:
        if value > edge:
            beyond += 1
        else:
            counts[min(bars - 1, int((value - low) / width))] += 1
    edges = [low + index * width for index in range(bars + 1)]
    rows: list[Row] = [
        {"low": left, "high": right, "steps": steps}
        for (left, right), steps in zip(pairwise(edges), counts, strict=True)
    ]
    return Histogram(rows, beyond)


def long_edge(values: Sequence[float]) -> float:
    """Where a drawing of step times ends: their longest, unless a few are far longer than most."""
    if len(values) < 10:
        return max(values)
    most = quantiles(values, n=20, method="inclusive")[-1]
    return max(value for value in values if value <= 1.5 * most)


def _median(values: Sequence[float], at: int, reach: int) -> float | None:
    """A median, not a mean: one long step is not to bend the line for the steps around it."""
    around = [v for v in values[max(0, at - reach) : at + reach + 1] if math.isfinite(v)]
    return _rounded(median(around))


def _mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    total = weight_sum = 0.0
    for value, weight in zip(values, weights, strict=True):
        if math.isfinite(value):
            total += value * weight
            weight_sum += weight
    return _rounded(total / weight_sum) if weight_sum > 0 else None


def _rounded(value: float | None) -> float | None:
    """More digits than a drawing shows, fewer than make up most of the page."""
    return None if value is None else float(f"{value:.6g}")
