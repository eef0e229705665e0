"""The sum over the parts of a batch, held against the tree written down a second time."""

import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.specs.even_division import slice_of
from paceline.sync.modes.canonical import rows_kept
from paceline.sync.modes.canonical.tree import Subtree, TreeSum, subtrees


@st.composite
def divided(draw: st.DrawFn) -> tuple[int, list[range]]:
    """Parts, and which of them each worker has; some may have none."""
    parts = draw(st.integers(1, 70))
    edges = sorted(draw(st.lists(st.integers(0, parts), max_size=9)))
    return parts, [range(*edge) for edge in pairwise([0, *edges, parts])]


def added(some: range, parts: int, leaves: list[Any], add: Any) -> TreeSum[Any]:
    tree: TreeSum[Any] = TreeSum(parts, add)
    for part in some:
        tree.push(Subtree(part, 0), leaves[part])
    return tree


def over_all(parts: int, ranges: list[range], leaves: list[Any], add: Any) -> Any:
    whole: TreeSum[Any] = TreeSum(parts, add)
    for some in ranges:
        own = added(some, parts, leaves, add).values
        for node, value in zip(subtrees(some, parts), own, strict=True):
            whole.push(node, value)
    (value,) = whole.values
    return value


def written_down(parts: int, leaves: list[Any], add: Any) -> Any:
    """Pair by pair, level by level."""
    level = leaves[:parts]
    while len(level) > 1:
        pairs = [level[number : number + 2] for number in range(0, len(level), 2)]
        level = [add(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


@given(divided())
def test_every_part_is_added_once_and_in_one_order(division: tuple[int, list[range]]) -> None:
    parts, ranges = division
    leaves = [str(part) for part in range(parts)]

    def add(left: str, right: str) -> str:
        return f"({left}+{right})"

    assert over_all(parts, ranges, leaves, add) == written_down(parts, leaves, add)


@given(divided(), st.data())
def test_any_division_gives_the_same_bits(
    division: tuple[int, list[range]], data: st.DataObject
) -> None:
    parts, ranges = division
    numbers = st.floats(-1e30, 1e30)
    leaves = data.draw(st.lists(numbers, min_size=parts, max_size=parts))
    found: float = over_all(parts, ranges, leaves, float.__add__)
    alone: float = over_all(parts, [range(parts)], leaves, float.__add__)
    assert found.hex() == alone.hex() == written_down(parts, leaves, float.__add__).hex()


@given(divided())
def test_nobody_has_more_subtrees_than_twice_the_levels(
    division: tuple[int, list[range]],
) -> None:
    parts, ranges = division
    for some in ranges:
        assert len(subtrees(some, parts)) <= max(1, 2 * math.ceil(math.log2(len(some) + 1)))


@given(st.integers(1, 70), st.integers(1, 70))
def test_rows_are_kept_as_the_planner_is_told(parts: int, workers: int) -> None:
    most = 0
    for rank in range(min(parts, workers)):
        tree: TreeSum[int] = TreeSum(parts, int.__add__)
        for part in slice_of(parts, workers, rank):
            most = max(most, len(tree.values))
            tree.push(Subtree(part, 0), 1)
    assert rows_kept(parts, workers) == most


def test_workers_with_as_many_parts_each_send_one_sum_if_that_is_a_power_of_two() -> None:
    for each, workers in ((1, 7), (2, 3), (4, 5), (8, 8)):
        parts = each * workers
        for worker in range(workers):
            assert len(subtrees(range(worker * each, (worker + 1) * each), parts)) == 1
