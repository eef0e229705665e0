"""Widths of intervals and margins of memory, earned on tables and models that were left out."""

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from paceline.cluster.collectives import Array

NINE_OF_TEN = 0.9
ONE_SIDED = 0.95
OUTSIDE = 2 / (1 - NINE_OF_TEN)
"""Price of what lies outside a 90 % interval, by its width (Gneiting and Raftery 2007)."""


def quantile_of_tables(
    tables: Sequence[Array], level: float = NINE_OF_TEN, *, unseen: bool = True
) -> float:
    """Return the quantile of scores in which each table has the same weight.

    With `unseen`, another table of infinite scores stands for the new one, so that at least `level`
    of its rows are within in the mean over tables (conformal prediction for grouped data).
    """
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in tables])
    scores = np.concatenate([np.asarray(each) for each in tables])
    order = np.argsort(scores)
    reached = np.cumsum(weights[order]) / (len(tables) + unseen)
    place = int(np.searchsorted(reached, level - 1e-9))
    return float(scores[order][place]) if place < len(scores) else float("inf")


def interval_score(errors: Array, half_width: Array | float) -> float:
    """Return the mean interval score of errors around zero."""
    beyond = np.maximum(np.abs(errors) - half_width, 0.0)
    return float(np.mean(2 * np.asarray(half_width) + OUTSIDE * beyond))


def memory_bounds(
    groups: Sequence[Array], engines: Sequence[Sequence[Array]]
) -> tuple[float, float]:
    """Return the one-sided 95 % bounds of a log error in a new group of an engine.

    `groups`: the errors in each group of that engine, whose mean is its level; `engines`: those of
    all engines, whose groups together say how much groups differ and how much rows do within one.
    """
    squares, freedom = 0.0, 0
    for some in engines:
        means = np.array([np.mean(each) for each in some])
        squares += float(((means - means.mean()) ** 2).sum())
        freedom += len(some) - 1
    within = float(np.mean([np.var(each) for some in engines for each in some]))
    spread = np.sqrt((squares / freedom + within) * (1 + 1 / len(groups)))
    reach = float(stdtrit(freedom, ONE_SIDED) * spread)
    level = float(np.mean([np.mean(each) for each in groups]))
    return level - reach, level + reach
