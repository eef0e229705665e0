"""Reduce per-step columns to a drawable size without hiding extremes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_POINTS = 1000
STRETCHES = 250
"""Number of intervals for a longer run; more would be narrower than the line is thick."""
Row = dict[str, float | int | None]
Column = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps: each step, or intervals of steps with their extremes.

    Rows hold `step` and `last` (of the interval), `samples` (cumulative), `mean`, `low`, `high`,
    and `trend`: the thick line. A value that is not finite is `None` and leaves a gap.
    """

    rows: list[Row]
    steps_per_row: int
    trend_steps: int
    """Number of steps that each point of the thick line summarizes."""


@dataclass(frozen=True)
class Histogram:
    """The distribution of step times; all steps are counted."""

    rows: list[Row]
    """`low`, `high` (the bar's edges) and `steps`."""
    steps_beyond: int
    """Number of steps beyond the last bar's edge, not drawn."""


def curve(
    step: Sequence[int],
    values: ArrayLike,
    samples: Sequence[int],
    weights: Sequence[float] | None = None,
) -> Curve:
    """Reduce a column over its steps; `weights` apply to interval means, as seconds for a rate."""
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
                # The thick line also has a gap at a step without a value.
                "trend": mean if mean is None or not reach else _median(column, start, reach),
            }
        )
    return Curve(rows, width, 2 * reach + 1)


def histogram(values: ArrayLike) -> Histogram:
    """Return the distribution; far longer steps count but are not drawn, to keep it legible."""
    column = np.asarray(values, dtype=np.float64)
    if not len(column):
        return Histogram([], 0)
    low, edge = float(column.min()), long_edge(column)
    if edge - low < 1e-9:
        # All steps took the same time: one bar, with room beside it.
        low, edge = sorted((0.9 * low, 1.1 * low + 1e-9))
    # Rice's rule, limited to bars that a screen can resolve.
    bars = min(40, max(10, math.ceil(2 * len(column) ** (1 / 3))))
    counts, edges = np.histogram(column, bars, (low, edge))
    rows: list[Row] = [
        {"low": left, "high": right, "steps": steps}
        for (left, right), steps in zip(pairwise(edges.tolist()), counts.tolist(), strict=True)
    ]
    return Histogram(rows, int((column > edge).sum()))


def long_edge(values: ArrayLike) -> float:
    """Return the upper limit for a chart of step times: the longest, except for a few outliers."""
    column = np.asarray(values, dtype=np.float64)
    if len(column) < 10:
        return float(column.max())
    return float(column[column <= 1.5 * np.quantile(column, 0.95)].max())


def _median(column: Column, at: int, reach: int) -> float | None:
    """Return the median around a step; unlike a mean, one long step does not distort it."""
    around = column[max(0, at - reach) : at + reach + 1]
    return _rounded(float(np.median(around[np.isfinite(around)])))


def _mean(part: Column, weights: Column) -> float | None:
    whole = weights.sum()
    return _rounded(float((part * weights).sum() / whole)) if whole > 0 else None


def _rounded(value: float) -> float:
    """Round to more digits than a chart shows, but few enough to keep the page small."""
    return float(f"{value:.6g}")
