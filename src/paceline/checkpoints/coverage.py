"""Coverage: whether the pieces of a tensor hold each of its elements exactly once."""

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import product
from math import prod
from typing import Protocol

from blake3 import blake3

_MOST_DIVIDED_DIMENSIONS = 8
"""A piece has 2^dimensions corners. Shards, tensor-parallel slices and replicas that divide a write
cut a tensor along three dimensions at most."""

_PRIME = (1 << 61) - 1


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


def tensor_weight(name: str) -> int:
    """Return the weight of a tensor in sums over several tensors."""
    return _random(name)


def held(whole: tuple[int, ...], piece: Rectangle) -> int:
    """Return a number for a rectangle of a tensor of this shape, which adds up.

    The numbers of rectangles that hold each element of a larger one once add up to that one's
    number. Others do with a probability of 2^-58 or less: the number is a product over the
    dimensions of differences of random numbers, one for each edge. So workers can check together
    that they hold every element once: each adds up its own pieces, and sends one number.
    """
    product = 1
    for dimension, (begin, length) in enumerate(zip(piece.offset, piece.shape, strict=True)):
        place = f"{whole} {dimension}"
        first, last = _random(f"{place} {begin}"), _random(f"{place} {begin + length}")
        product = product * (first - last) % _PRIME
    return product


def added_up(numbers: Iterable[int]) -> int:
    """Return the sum of numbers of rectangles, or of other such sums."""
    return sum(numbers) % _PRIME


def _random(text: str) -> int:
    return int.from_bytes(blake3(text.encode()).digest(length=8), "big") % _PRIME
