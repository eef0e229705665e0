"""Lines through times that follow one, with and without noise."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.probe.link_fit import FASTEST, Line, costs, line
from paceline.specs.measurements.probe import CollectiveTime

SIZES = [4096 * 2.5**power for power in range(11)]
latencies = st.floats(1e-6, 1e-2)
rates = st.floats(1e6, 1e12)


def distance(found: Line, true: Line) -> float:
    return max(abs(found.seconds(size) / true.seconds(size) - 1) for size in SIZES)


@given(latency=latencies, rate=rates)
def test_a_straight_line_is_found(latency: float, rate: float) -> None:
    true = Line(latency, rate, 0.0)
    found = line(SIZES, [true.seconds(size) for size in SIZES])
    assert distance(found, true) < 1e-6


@given(latency=st.floats(1e-5, 1e-3), rate=st.floats(1e7, 1e8), at=st.integers(2, 7))
def test_bytes_that_pass_at_once_are_found(latency: float, rate: float, at: int) -> None:
    true = Line(latency, rate, SIZES[at])
    found = line(SIZES, [true.seconds(size) for size in SIZES])
    assert distance(found, true) < 0.05


@given(latency=latencies, rate=rates, seed=st.integers(0, 10_000))
def test_a_held_out_size_is_predicted_through_noise(latency: float, rate: float, seed: int) -> None:
    noise = random.Random(seed)
    true = Line(latency, rate, 0.0)
    kept = [size for size in SIZES if size != SIZES[5]]
    found = line(kept, [true.seconds(size) * noise.uniform(0.97, 1.03) for size in kept])
    assert found.seconds(SIZES[5]) == pytest.approx(true.seconds(SIZES[5]), rel=0.1)


@given(latency=latencies, rate=rates, held_up=st.integers(0, 9), by=st.floats(2, 50))
def test_one_call_that_was_held_up_counts_little(
    latency: float, rate: float, held_up: int, by: float
) -> None:
    true = Line(latency, rate, 0.0)
    times = [true.seconds(size) for size in SIZES]
    times[held_up] *= by
    found = line(SIZES, times)
    assert found.seconds(SIZES[-1]) == pytest.approx(times[-1], rel=0.05)


@given(times=st.lists(st.floats(1e-6, 10), min_size=1, max_size=11))
def test_any_times_give_a_possible_line(times: list[float]) -> None:
    found = line(SIZES[: len(times)], times)
    assert found.latency_seconds >= 0
    # At the most so many times the rate of the largest message.
    fastest = FASTEST * SIZES[len(times) - 1] / times[-1]
    assert 0 < found.bytes_per_second <= fastest * (1 + 1e-9)
    assert found.free_bytes >= 0


def test_each_operation_and_grouping_has_its_own_line() -> None:
    def times(operation: str, members: int, rate: float) -> list[CollectiveTime]:
        return [
            CollectiveTime.model_validate(
                {
                    "operation": operation,
                    "members": members,
                    "members_per_node": 1,
                    "nbytes": round(size),
                    "seconds": 1e-4 + round(size) / rate,
                }
            )
            for size in SIZES
        ]

    found = costs([*times("send", 2, 1e8), *times("all-reduce", 2, 2e8)])
    assert [each.operation for each in found] == ["send", "all-reduce"]
    assert [each.bytes_per_second for each in found] == pytest.approx([1e8, 2e8])
    assert found[0].latency_seconds == pytest.approx(1e-4)
