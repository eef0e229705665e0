"""Which part of a whole tensor a worker holds: what lets a checkpoint be read in another layout."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

_SMALLEST_PART_BYTES = 4 << 20
"""What several workers hold alike they write in parts, but not in smaller ones than this."""


class Box(NamedTuple):
    """A rectangle of a tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """This rectangle as an index of the tensor that it lies in."""
        return tuple(
            slice(begin, begin + length)
            for begin, length in zip(self.offset, self.shape, strict=True)
        )

    def within(self, origin: tuple[int, ...]) -> "Box":
        """The same rectangle as seen from another origin."""
        offset = tuple(a - b for a, b in zip(self.offset, origin, strict=True))
        return Box(offset, self.shape)

    def overlap(self, other: "Box") -> "Box | None":
        """What two rectangles of one tensor share."""
        begins = tuple(map(max, self.offset, other.offset))
        ends = [
            min(a + length_a, b + length_b)
            for a, length_a, b, length_b in zip(*self, *other, strict=True)
        ]
        shape = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
        return Box(begins, shape) if all(length > 0 for length in shape) else None

    def split(self, count: int) -> "list[Box]":
        """Parts of nearly equal size, along the longest dimension; fewer where that is short."""
        if count == 1 or not self.shape:
            return [self]
        dimension = max(range(len(self.shape)), key=lambda each: self.shape[each])
        length = self.shape[dimension]
        count = max(1, min(count, length))
        edges = [length * number // count for number in range(count + 1)]
        parts = []
        for begin, end in pairwise(edges):
            offset, shape = list(self.offset), list(self.shape)
            offset[dimension] += begin
            shape[dimension] = end - begin
            parts.append(Box(tuple(offset), tuple(shape)))
        return parts


@dataclass(frozen=True)
class Piece:
    """A rectangle of a named tensor, with what this worker has of it."""

    name: str
    whole: tuple[int, ...]
    """The shape of the whole tensor."""
    box: Box
    tensor: torch.Tensor


@dataclass(frozen=True)
class Extent:
    """Where a tensor that a worker holds lies in the whole one."""

    whole: tuple[int, ...]
    parts: tuple[tuple[Box, tuple[int, ...]], ...]
    """Rectangles of the whole tensor, and where each begins in what is held."""
    copies: int = 1
    """How many workers hold the same."""
    copy: int = 0
    """Which of them this one is."""

    @classmethod
    def everything(cls, shape: tuple[int, ...]) -> "Extent":
        """All of a tensor."""
        origin = (0,) * len(shape)
        return cls(shape, ((Box(origin, shape), origin),))

    @classmethod
    def slice(
        cls, held: tuple[int, ...], dimension: int, pieces: list[range], length: int
    ) -> "Extent":
        """Several ranges along a dimension, held behind each other."""
        whole = (*held[:dimension], length, *held[dimension + 1 :])
        begins = accumulate((len(piece) for piece in pieces), initial=0)
        parts = []
        for piece, begin in zip(pieces, begins, strict=False):
            offset, here = [0] * len(held), [0] * len(held)
            offset[dimension], here[dimension] = piece.start, begin
            shape = (*held[:dimension], len(piece), *held[dimension + 1 :])
            parts.append((Box(tuple(offset), shape), tuple(here)))
        return cls(whole, tuple(parts))

    def rows(self, begin: int, length: int) -> "Extent":
        """Only these rows of what is held."""
        kept = []
        for box, here in self.parts:
            first, last = max(here[0], begin), min(here[0] + box.shape[0], begin + length)
            if first < last:
                offset = (box.offset[0] + first - here[0], *box.offset[1:])
                shape = (last - first, *box.shape[1:])
                kept.append((Box(offset, shape), (first - begin, *here[1:])))
        return replace(self, parts=tuple(kept))

    def among(self, copies: int, copy: int) -> "Extent":
        """The same, held by so many times as many workers."""
        return Extent(self.whole, self.parts, self.copies * copies, self.copy * copies + copy)

    def held(self, name: str, local: torch.Tensor) -> Iterator[Piece]:
        """What a worker holds, rectangle by rectangle."""
        for box, here in self.parts:
            yield Piece(name, self.whole, box, _cut(local, Box(here, box.shape)))

    def written(self, name: str, local: torch.Tensor) -> Iterator[Piece]:
        """What a worker writes of it: workers that hold the same divide it among them."""
        # By the name, so that small tensors, too, are spread over the workers.
        first = zlib.crc32(name.encode())
        for piece in self.held(name, local):
            count = min(self.copies, max(1, piece.tensor.nbytes // _SMALLEST_PART_BYTES))
            for number, box in enumerate(piece.box.split(count)):
                if (first + number) % self.copies == self.copy:
                    part = _cut(piece.tensor, box.within(piece.box.offset))
                    yield Piece(name, self.whole, box, part)


def _cut(tensor: torch.Tensor, box: Box) -> torch.Tensor:
    """What lies in a rectangle of a tensor, which is often all of it: indexing takes longer."""
    return tensor if box.shape == tuple(tensor.shape) else tensor[box.slices]
