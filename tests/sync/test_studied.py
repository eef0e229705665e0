"""All-reduce by hand: the sum of torch's own, with the rounds and bytes that the theory says."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.groups import Groups
from paceline.schedulers.placement import placement, run_folder
from paceline.specs import Run
from paceline.sync.hierarchical import hierarchical_all_reduce
from paceline.sync.studied import double_tree, double_tree_all_reduce, ring_all_reduce
from paceline.sync.transport import Transport
from paceline.train.elastic.joined_groups import joined
from ranks import run_ranks

AllReduce = Callable[[torch.Tensor, Transport], torch.Tensor]
LENGTHS = (1, 2, 7, 60, 1009)
"""One that every number of workers divides, one that none does, and fewer values than workers."""
TREES: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {
    2: ([(1, 0)], [(0, 1)]),
    3: ([(1, 2), (2, 0)], [(2, 0), (0, 1)]),
    4: ([(1, 2), (3, 2), (2, 0)], [(2, 1), (0, 1), (1, 3)]),
    5: ([(1, 2), (3, 2), (2, 4), (4, 0)], [(2, 3), (4, 3), (3, 0), (0, 1)]),
}
"""Drawn by hand: children with their parents in both trees, by the number of workers."""


class CountingTransport(Transport):
    rounds = 0

    def swap(
        self,
        sent: Mapping[int, torch.Tensor],
        received: Mapping[int, torch.Tensor],
        *,
        sent_tag: int = 0,
        received_tag: int = 0,
    ) -> None:
        self.rounds += 1
        super().swap(sent, received, sent_tag=sent_tag, received_tag=received_tag)


def own_values(length: int, rank: int) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(rank))


def torch_sum(length: int, rank: int) -> torch.Tensor:
    values = own_values(length, rank)
    dist.all_reduce(values)
    return values


@contextmanager
def own_groups() -> Iterator[Groups]:
    folder = run_folder()
    assert folder is not None
    with joined(Run.open(folder), placement(), torch.device("cpu"), None) as groups:
        yield groups


def studied() -> list[list[tuple[int, int]]]:
    """Rounds and bytes of every length, by a ring and by a double tree; sums are checked here."""
    with own_groups() as groups:
        return [
            [counted(each, length, groups) for length in LENGTHS]
            for each in (ring_all_reduce, double_tree_all_reduce)
        ]


def counted(all_reduce: AllReduce, length: int, groups: Groups) -> tuple[int, int]:
    rank, workers = groups.placement.rank, groups.placement.workers
    transport = CountingTransport(lambda: dist.group.WORLD, groups.device, workers, rank)
    values = own_values(length, rank)
    assert all_reduce(values, transport) is values
    torch.testing.assert_close(values, torch_sum(length, rank), atol=1e-6, rtol=1e-6)
    return transport.rounds, transport.sent_bytes


@pytest.mark.parametrize(
    "workers", [4, *(pytest.param(each, marks=pytest.mark.nightly) for each in (2, 3, 5))]
)
def test_sums_rounds_and_bytes(tmp_path: Path, workers: int) -> None:
    found = run_ranks(studied, workers, tmp_path)
    for number, length in enumerate(LENGTHS):
        ring = [of_rank[0][number] for of_rank in found]
        tree = [of_rank[1][number] for of_rank in found]
        assert {rounds for rounds, _ in ring} == {2 * (workers - 1)}
        assert {rounds for rounds, _ in tree} == {2 * math.ceil(math.log2(workers))}
        # 2(n-1)/n of the bytes, as near as parts of whole numbers can be, and exactly on average.
        share = 2 * (workers - 1) / workers * 4 * length
        assert [nbytes for _, nbytes in ring] == pytest.approx([share] * workers, abs=2 * 4)
        assert sum(nbytes for _, nbytes in ring) == pytest.approx(workers * share)
        assert sum(nbytes for _, nbytes in tree) == pytest.approx(workers * share)
        halves = (length - length // 2, length // 2)
        for rank, (_, nbytes) in enumerate(tree):
            # Over every edge of a worker, half of the values goes out once: up or down.
            edges = [sum(rank in edge for edge in of_tree) for of_tree in TREES[workers]]
            assert nbytes == 4 * sum(map(int.__mul__, edges, halves))


@given(workers=st.integers(2, 300))
def test_two_trees_in_which_nobody_is_a_leaf_twice(workers: int) -> None:
    trees = double_tree(workers)
    children = [Counter(tree.parents) for tree in trees]
    for tree, numbers in zip(trees, children, strict=True):
        assert numbers.pop(None) == 1
        assert numbers[tree.parents.index(None)] == 1
        assert max(numbers.values()) <= 2
        assert tree.height == math.ceil(math.log2(workers))
    for rank in range(workers):
        # It sends half of the values over each of its edges.
        edges = [numbers[rank] for numbers in children]
        edges += [1 for tree in trees if tree.parents[rank] is not None]
        assert sum(edges) <= 4
        assert any(numbers[rank] for numbers in children)
    first, second = ({*zip(range(workers), t.parents, t.depths, strict=True)} for t in trees)
    assert not first & second, "two messages between the same two workers in one round"


@pytest.mark.parametrize("workers", TREES)
def test_small_trees_are_those_drawn_by_hand(workers: int) -> None:
    for tree, drawn in zip(double_tree(workers), TREES[workers], strict=True):
        edges = [edge for depth in range(1, tree.height + 1) for edge in tree.edges(depth)]
        assert sorted(edges) == sorted(drawn)


def inside_across_inside() -> None:
    with own_groups() as groups:
        rank = groups.placement.rank
        for per_node in (1, 2, 4):
            first = rank - rank % per_node
            node = list(range(first, first + per_node))
            same_place = list(range(rank % per_node, 4, per_node))
            with groups.among(node) as inside, groups.among(same_place) as across:
                assert inside is not None
                assert across is not None
                for length in LENGTHS:
                    values = own_values(length, rank).view(1, -1)
                    assert hierarchical_all_reduce(values, inside, across) is values
                    expected = torch_sum(length, rank).view(1, -1)
                    torch.testing.assert_close(values, expected, atol=1e-6, rtol=1e-6)


def test_inside_across_inside_is_the_sum_of_all(tmp_path: Path) -> None:
    run_ranks(inside_across_inside, 4, tmp_path)
