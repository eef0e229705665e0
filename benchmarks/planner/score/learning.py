"""Samples that a training needs to reach its target, by batch size: a law fitted to submissions.

Larger batches need more samples: E = E_min (1 + B / B_crit), as McCandlish et al. found (An
empirical model of large-batch training, 2018). Both numbers belong to a model, its data and its
target.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from paceline.cluster.collectives import Array
from paceline.specs.errors import PacelineError


@dataclass(frozen=True)
class Line:
    """`start + slope * x`, neither of them negative."""

    start: float
    slope: float

    def at(self, x: Array | float) -> Array:
        """Its value there."""
        return np.asarray(self.start + self.slope * np.asarray(x))


@dataclass(frozen=True)
class Learning:
    """Of one model, its data and its target."""

    least_samples: float
    """With small batches."""
    critical_batch: float
    """At which twice as many are needed; infinite where the rows show no growth."""
    spread: float = 0.0
    """Relative error within which nine of ten rows are when they are predicted from the others."""

    def samples(self, batch: Array | float) -> Array:
        """That reach the target."""
        return np.asarray(self.least_samples * (1.0 + np.asarray(batch) / self.critical_batch))

    def steps(self, batch: Array | float) -> Array:
        """That reach the target, each of `batch` samples."""
        return np.asarray(np.ceil(self.samples(batch) / batch))


def fit_learning(batches: Array, samples: Array) -> Learning:
    """From trainings that reached the target with batches of several sizes."""
    line = closest_line(batches, samples)
    if not line.start:
        raise PacelineError(
            "the samples to the target grow as fast as the batch: no number of samples suits all",
            fix="add trainings with smaller batches",
        )
    critical = line.start / line.slope if line.slope else math.inf
    return Learning(line.start, critical, _spread(batches, samples))


def _spread(batches: Array, samples: Array) -> float:
    if len(batches) < 2:
        return math.inf
    misses = []
    for index, (batch, measured) in enumerate(zip(batches, samples, strict=True)):
        others = closest_line(np.delete(batches, index), np.delete(samples, index))
        misses.append(abs(float(others.at(batch)) / measured - 1.0))
    return float(np.quantile(misses, 0.9))


def closest_line(x: Array, y: Array) -> Line:
    """The one with the least mean error, relative to `y`: single rows far off pull little.

    Such a line passes through two of the rows, or through one where a limit holds it.
    """
    lines = [Line(float(each), 0.0) for each in y]
    lines += [Line(0.0, float(there / here)) for here, there in zip(x, y, strict=True) if here > 0]
    for one, other in combinations(range(len(x)), 2):
        if x[one] != x[other]:
            slope = float((y[other] - y[one]) / (x[other] - x[one]))
            lines.append(Line(float(y[one] - slope * x[one]), slope))
    possible = [each for each in lines if each.start >= 0 and each.slope >= 0]
    return min(possible, key=lambda each: float(np.abs(each.at(x) / y - 1.0).mean()))
