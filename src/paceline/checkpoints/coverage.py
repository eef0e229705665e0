"""Coverage: whether the pieces of a tensor hold each of its elements exactly once."""

from collections import Counter
from collections.abc import Collection
from itertools import product
from math import prod
from typing import Protocol

_MOST_DIVIDED_DIMENSIONS = 8
"""A piece has 2^dimensions corners. Shards, tensor-parallel slices and replicas that divide a write
cut a tensor along three dimensions at most."""


class Rectangle(Protocol):
    """A rectangle of a tensor."""

    @property
    def offset(self) -> tuple[int, ...]:
        """Its first element."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length in each dimension."""


def covers_once(whole: tuple[int, ...], pieces: Collection[Rectangle]) -> bool:
    """Return whether the pieces hold each element of a tensor of this shape exactly once.

    The number of pieces that hold an element is a function on the grid, and its difference along
    all dimensions determines it. A rectangle's difference is 1 or -1 at its corners and 0
    elsewhere. So the pieces' signed corners add up to the tensor's own exactly if each element is
    held once; this takes linear time, where comparing all pairs of pieces would not.
    """
    if not prod(whole):
        return True
    divided = [
        dimension
        for dimension, length in enumerate(whole)
        if any(piece.offset[dimension] or piece.shape[dimension] != length for piece in pieces)
    ]
    if len(divided) > _MOST_DIVIDED_DIMENSIONS:
        return False
    signs = [(-1) ** sum(ends) for ends in product((0, 1), repeat=len(divided))]
    corners: Counter[tuple[int, ...]] = Counter()
    for piece in pieces:
        edges = [(piece.offset[at], piece.offset[at] + piece.shape[at]) for at in divided]
        for corner, sign in zip(product(*edges), signs, strict=True):
            corners[corner] += sign
    for corner, sign in zip(product(*((0, whole[at]) for at in divided)), signs, strict=True):
        corners[corner] -= sign
    return not any(corners.values())
