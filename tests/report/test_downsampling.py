"""Drawing many steps as few points without hiding what they hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.report.drawing.downsampling import MOST_POINTS, curve, histogram, long_edge


def test_few_steps_are_all_drawn() -> None:
    drawn = curve([1, 2, 3], [3.0, 2.0, 1.0], [8, 8, 8])
    assert [row["mean"] for row in drawn.rows] == [3.0, 2.0, 1.0]
    assert [row["samples"] for row in drawn.rows] == [8, 16, 24]
    assert (drawn.steps_per_row, drawn.trend_steps) == (1, 1)


def test_many_steps_keep_their_mean_and_their_extremes() -> None:
    values = [1.0] * 10_000
    values[5003] = 99.0
    drawn = curve(range(1, 10_001), values, [1] * 10_000)
    assert len(drawn.rows) == 250
    peak = max(drawn.rows, key=lambda row: row["high"] or 0)
    assert (peak["low"], peak["high"]) == (1.0, 99.0)
    assert peak["mean"] == pytest.approx(3.45)
    assert (peak["step"], peak["last"]) == (5001, 5040)
    assert drawn.rows[-1]["samples"] == 10_000


def test_a_rate_over_a_stretch_is_weighted_by_its_time() -> None:
    # 1,004 steps of one sample, in stretches of five, every fifth ten times as long.
    seconds = [10.0 if number % 5 == 0 else 1.0 for number in range(1004)]
    rates = [1 / each for each in seconds]
    drawn = curve(range(1, 1005), rates, [1] * 1004, weights=seconds)
    assert drawn.steps_per_row == 5
    assert drawn.rows[0]["mean"] == pytest.approx(5 / 14, rel=1e-5)


def test_what_is_no_number_is_a_gap() -> None:
    drawn = curve(range(1, 101), [math.nan if 40 <= n < 50 else 1.0 for n in range(100)], [1] * 100)
    assert [row["step"] for row in drawn.rows if row["trend"] is None] == list(range(41, 51))
    assert all(row["low"] is None for row in drawn.rows if row["mean"] is None)


@given(st.integers(0, 5000))
def test_never_more_points_than_can_be_drawn(count: int) -> None:
    drawn = curve(range(1, count + 1), [1.0] * count, [1] * count)
    assert len(drawn.rows) <= MOST_POINTS
    assert sum(int(row["last"] or 0) - int(row["step"] or 0) + 1 for row in drawn.rows) == count


@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_a_histogram_counts_every_step(values: list[float]) -> None:
    drawn = histogram(values)
    assert sum(int(row["steps"] or 0) for row in drawn.rows) + drawn.steps_beyond == len(values)


def test_a_few_long_steps_do_not_squeeze_the_rest() -> None:
    values = [0.1, 0.11] * 50 + [5.0]
    assert long_edge(values) == 0.11
    assert histogram(values).steps_beyond == 1
    assert long_edge([0.1, 5.0]) == 5.0


@pytest.mark.parametrize("value", [0.0, 5e-324, 12.5])
def test_steps_that_all_took_the_same_time_are_one_bar(value: float) -> None:
    drawn = histogram([value] * 30)
    assert [row["steps"] for row in drawn.rows if row["steps"]] == [30]
