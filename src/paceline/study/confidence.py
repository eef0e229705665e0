"""Confidence intervals of means, by Student's t."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from paceline.specs import Interval


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the mean with its confidence interval; a single value has none."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(value=mean)
    half = quantile((1 + confidence) / 2, count - 1) * stdev(values) / math.sqrt(count)
    return Interval(value=mean, low=mean - half, high=mean + half)


def rate_interval(rates: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the mean of rates with its confidence interval, of their logarithms: none is negative.

    With little spread it equals `interval`; rates of a busy machine spread in ratios.
    """
    mean, count = fmean(rates), len(rates)
    if count == 1:
        return Interval(value=mean)
    logarithms = [math.log(rate) for rate in rates]
    half = quantile((1 + confidence) / 2, count - 1) * stdev(logarithms) / math.sqrt(count)
    return Interval(value=mean, low=mean * math.exp(-half), high=mean * math.exp(half))


def quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution."""
    from scipy.special import stdtrit  # noqa: PLC0415  # scipy.stats takes a second to import

    return float(stdtrit(degrees, probability))


def probability(value: float, degrees: int) -> float:
    """Return the probability that Student's t is at most this value."""
    from scipy.special import stdtr  # noqa: PLC0415  # as above

    return float(stdtr(degrees, value))
