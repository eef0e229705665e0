"""Student's t, against the density that defines it."""

import math

import numpy as np
import pytest

from paceline.specs import Interval
from paceline.study.confidence import interval, quantile


@pytest.mark.parametrize("probability", [0.95, 0.975])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 13, 30, 101])
def test_students_t_holds_90_or_95_of_100(degrees: int, probability: float) -> None:
    # t = sqrt(v) tan(angle) turns the density into cos(angle)^(v - 1) between -pi/2 and pi/2.
    def area(end: float) -> float:
        middles = (np.arange(10_000) + 0.5) * end / 10_000
        return float(np.mean(np.cos(middles) ** (degrees - 1))) * end

    end = math.atan(quantile(probability, degrees) / math.sqrt(degrees))
    assert area(end) / area(math.pi / 2) == pytest.approx(2 * probability - 1, abs=1e-6)


def test_an_interval_by_students_t() -> None:
    found = interval([9.0, 10.0, 11.0])
    half = 4.303 / math.sqrt(3)
    assert [found.low, found.value, found.high] == pytest.approx(
        [10 - half, 10, 10 + half], rel=1e-4
    )
    assert interval([7.0]) == Interval(value=7)
    ninety = interval([9.0, 10.0, 11.0], 0.90)
    assert ninety.high == pytest.approx(10 + 2.920 / math.sqrt(3), rel=1e-4)
    many = np.random.default_rng(1).normal(10, 1, 400)
    half = 1.966 * many.std(ddof=1) / 20
    assert interval(many.tolist()).high == pytest.approx(many.mean() + half, rel=1e-4)
