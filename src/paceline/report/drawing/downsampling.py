"""Columns of steps made small enough to draw, without hiding what they hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_POINTS = 1000
STRETCHES = 250
"""Of a longer run; more would lie closer than a line is thick."""
Row = dict[str, float | int | None]
Column = NDArray[np.float64]


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
    values: ArrayLike,
    samples: Sequence[int],
    weights: Sequence[float] | None = None,
) -> Curve:
    """A column over its steps; a stretch's mean is weighted, by a rate's seconds for example."""
    count = len(step)
    width = 1 if count <= MOST_POINTS else math.ceil(count / STRETCHES)
    reach = count // 40 if width == 1 else 0
    column = np.asarray(values, dtype=np.float64)
    weight = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    seen = np.cumsum(samples, dtype=np.int64)
    rows: list[Row] = []
    for start in range(0, count, width):
        stop = min(start + width, count)
        finite = np.isfinite(column[start:stop])
        part = column[start:stop][finite]
        mean = _mean(part, weight[start:stop][finite])
        rows.append(
            {
                "step": step[start],
                "last": step[stop - 1],
                "samples": int(seen[stop - 1]),
                "mean": mean,
                "low": _rounded(part.min()) if len(part) else None,
                "high": _rounded(part.max()) if len(part) else None,
                # Where the step itself has no value the thick line has its gap, too.
                "trend": mean if mean is None or not reach else _median(column, start, reach),
            }
        )
    return Curve(rows, width, 2 * reach + 1)


def histogram(values: ArrayLike) -> Histogram:
    """The distribution; a few far longer steps are counted but not drawn, lest they squeeze it."""
    column = np.asarray(values, dtype=np.float64)
    if not len(column):
        return Histogram([], 0)
    low, edge = float(column.min()), long_edge(column)
    if edge - low < 1e-9:
        # All steps took the same time: one bar, with room beside it.
        low, edge = sorted((0.9 * low, 1.1 * low + 1e-9))
    # Rice's rule, within what can be told apart on a screen.
    bars = min(40, max(10, math.ceil(2 * len(column) ** (1 / 3))))
    counts, edges = np.histogram(column, bars, (low, edge))
    rows: list[Row] = [
        {"low": left, "high": right, "steps": steps}
        for (left, right), steps in zip(pairwise(edges.tolist()), counts.tolist(), strict=True)
    ]
    return Histogram(rows, int((column > edge).sum()))


def long_edge(values: ArrayLike) -> float:
    """Where a drawing of step times ends: their longest, unless a few are far longer than most."""
    column = np.asarray(values, dtype=np.float64)
    if len(column) < 10:
        return float(column.max())
    return float(column[column <= 1.5 * np.quantile(column, 0.95)].max())


def _median(column: Column, at: int, reach: int) -> float | None:
    """A median, not a mean: one long step is not to bend the line for the steps around it."""
    around = column[max(0, at - reach) : at + reach + 1]
    return _rounded(float(np.median(around[np.isfinite(around)])))


def _mean(part: Column, weights: Column) -> float | None:
    whole = weights.sum()
    return _rounded(float((part * weights).sum() / whole)) if whole > 0 else None


def _rounded(value: float) -> float:
    """More digits than a drawing shows, fewer than make up most of the page."""
    return float(f"{value:.6g}")
