"""All-reduce by a ring and by a double binary tree, made of sends and receives: for study only.

Training calls torch's own: libraries choose between such ways by the size of a message, and send it
in many pieces, one behind the other. Here every round is one `Transport.swap`, so that rounds and
bytes can be counted and held against the theory. `cluster/collectives/double_tree.py` says what
pieces gain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from paceline.sync.transport import Transport


def ring_all_reduce(values: torch.Tensor, transport: Transport) -> torch.Tensor:
    """The sum over n workers, in place, in 2(n-1) rounds (Patarasuk and Yuan 2009).

    In the first n-1, a sum of each n-th part goes around and grows; in the others, it goes around
    as it is. Each worker sends 2(n-1)/n of the bytes, whatever n is.
    """
    workers, rank = transport.workers, transport.rank
    parts = values.view(-1).tensor_split(workers)
    following, preceding = (rank + 1) % workers, (rank - 1) % workers
    for step in range(workers - 1):
        own = parts[(rank - step - 1) % workers]
        received = torch.empty_like(own)
        transport.swap({following: parts[(rank - step) % workers]}, {preceding: received})
        own += received
    for step in range(workers - 1):
        transport.swap(
            {following: parts[(rank - step + 1) % workers]},
            {preceding: parts[(rank - step) % workers]},
        )
    return values


def double_tree_all_reduce(values: torch.Tensor, transport: Transport) -> torch.Tensor:
    """The sum over n workers, in place, in 2·log2(n) rounds, rounded up.

    Half of the values is summed up one tree and sent down it again, half at the same time in the
    other. All workers together send as many bytes as in a ring, and none of them more than twice
    its values. Halves go whole, so that a level waits for all of the one below.
    """
    trees = double_tree(transport.workers)
    halves = values.view(-1).tensor_split(2)
    levels = [
        _neighbours(trees, halves, depth, transport.rank) for depth in range(1, trees[0].height + 1)
    ]
    for parents, children in reversed(levels):
        received = {child: torch.empty_like(half) for child, half in children.items()}
        transport.swap(parents, received)
        for child, half in children.items():
            half.add_(received[child])
    for parents, children in levels:
        transport.swap(children, parents)
    return values


def _neighbours(
    trees: tuple["Tree", "Tree"], halves: Sequence[torch.Tensor], depth: int, rank: int
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    """A worker's parents if it is at this depth, its children that are; with what they exchange.

    A rank is enough to tell messages apart: at one depth, no worker has the same parent in both.
    """
    parents, children = {}, {}
    for tree, half in zip(trees, halves, strict=True):
        for child, parent in tree.edges(depth):
            if child == rank:
                parents[parent] = half
            elif parent == rank:
                children[child] = half
    return parents, children


@dataclass(frozen=True)
class Tree:
    """Of workers; the root has one child, all others up to two."""

    parents: tuple[int | None, ...]
    """By rank."""

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """How far each worker is from the root."""
        return tuple(self._depth(rank) for rank in range(len(self.parents)))

    @property
    def height(self) -> int:
        """The largest depth."""
        return max(self.depths)

    def edges(self, depth: int) -> Iterator[tuple[int, int]]:
        """The workers of a depth, each with its parent; none of depth 0."""
        for rank, parent in enumerate(self.parents):
            if parent is not None and self.depths[rank] == depth:
                yield rank, parent

    def _depth(self, rank: int) -> int:
        parent = self.parents[rank]
        return 0 if parent is None else 1 + self._depth(parent)


def double_tree(workers: int) -> tuple[Tree, Tree]:
    """Two trees of height log2(workers), rounded up, in which no worker is a leaf twice.

    Two trees: Sanders, Speck and Träff 2009. These two: NCCL 2.4. In the first one all leaves have
    odd ranks. An even number of workers, counted from the last to the first, takes the second one
    with even leaves; an odd number would find the odd ones again, and moves on by one instead.
    """
    first = [_parent(rank, workers) for rank in range(workers)]
    if workers % 2 == 0:
        moved = list(reversed(range(workers)))
    else:
        moved = [(rank + 1) % workers for rank in range(workers)]
    second: list[int | None] = [None] * workers
    for rank, parent in enumerate(first):
        second[moved[rank]] = None if parent is None else moved[parent]
    return Tree(tuple(first)), Tree(tuple(second))


def _parent(rank: int, workers: int) -> int | None:
    """By the lowest bit of a rank: it moves up by one place, or goes where that rank is missing."""
    if rank == 0:
        return None
    lowest = rank & -rank
    without = rank - lowest
    above = without | (lowest << 1)
    return above if above < workers else without
