"""Arithmetic of times: what must hold for any intervals."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline.observe.traces.intervals import Interval, common, in_rows, length, union, without

# Whole numbers, so that sums are exact and edges meet.
intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda each: (each[0], sum(each)))
)


def moments(given: list[Interval]) -> set[int]:
    """The units of time in them, one by one."""
    return {moment for begin, end in given for moment in range(int(begin), int(end))}


@given(intervals, intervals)
def test_they_are_sets_of_moments(ones: list[Interval], others: list[Interval]) -> None:
    assert moments(union(ones)) == moments(ones)
    assert moments(common(ones, others)) == moments(ones) & moments(others)
    assert moments(without(ones, others)) == moments(ones) - moments(others)
    assert length(ones) == len(moments(ones))


@given(intervals, intervals)
def test_hidden_and_exposed_are_the_whole(ones: list[Interval], others: list[Interval]) -> None:
    assert length(common(ones, others)) + length(without(ones, others)) == length(ones)


@given(intervals, st.randoms())
def test_the_order_is_of_no_matter(ones: list[Interval], chance: object) -> None:
    shuffled = ones.copy()
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert union(shuffled) == union(ones)
    assert union(union(ones)) == union(ones)


@given(intervals)
def test_results_lie_apart_in_their_order(ones: list[Interval]) -> None:
    edges = [edge for each in union(ones) for edge in each]
    assert edges == sorted(set(edges))


@given(intervals)
def test_no_two_in_a_row_overlap(ones: list[Interval]) -> None:
    rows = in_rows(ones)
    for row in set(rows):
        in_it = sorted(each for each, its in zip(ones, rows, strict=True) if its == row)
        assert all(one[1] <= other[0] for one, other in pairwise(in_it))
    most_at_once = max(
        (sum(begin <= at < end for begin, end in ones) for at in range(81)), default=0
    )
    # Intervals of no length may need a row of their own.
    if all(end > begin for begin, end in ones):
        assert len(set(rows)) == most_at_once
