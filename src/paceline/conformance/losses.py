"""Comparison of the losses of two trainings."""

import math
from collections.abc import Sequence


def difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest relative difference of any step; infinity if a step is missing."""
    if len(found) != len(expected) or not all(map(math.isfinite, found)):
        return math.inf
    return max(abs(one / other - 1.0) for one, other in zip(found, expected, strict=True))
