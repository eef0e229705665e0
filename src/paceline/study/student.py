"""Student's t, for as many degrees of freedom as a study may have."""

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev

from paceline.specs import Interval


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Their mean, and its confidence interval; none around a single value."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(value=mean)
    half = quantile((1 + confidence) / 2, count - 1) * stdev(values) / math.sqrt(count)
    return Interval(value=mean, low=mean - half, high=mean + half)


@cache
def quantile(probability: float, degrees: int) -> float:
    """The t that is exceeded with a probability of `1 - probability`, which is at least a half."""
    low, high = 0.0, 1.0
    while _between(high, degrees) < 2 * probability - 1:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _between(middle, degrees) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return high


def _between(t: float, degrees: int) -> float:
    """The probability of values from -t to t: Abramowitz and Stegun, Handbook of Mathematical
    Functions (1964), 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total
