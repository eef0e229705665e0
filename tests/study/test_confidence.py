"""Student's t, against the density that defines it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.specs import Interval
from paceline.study.confidence import interval, quantile, rate_interval


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


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=8))
def test_the_interval_of_rates_is_possible(rates: list[float]) -> None:
    found = rate_interval(rates)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value * (1 + 1e-9)
    assert found.high >= found.value * (1 - 1e-9)


def test_rates_with_little_spread_have_the_usual_interval() -> None:
    rates = [99.0, 100.0, 101.0]
    usual, found = interval(rates), rate_interval(rates)
    assert found.low == pytest.approx(usual.low, rel=1e-3)
    assert found.high == pytest.approx(usual.high, rel=1e-3)
