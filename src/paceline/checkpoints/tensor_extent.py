"""Extents: a worker's part of a full tensor, so that checkpoints can be read in another layout."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch

_SMALLEST_PART_BYTES = 4 << 20
"""Workers that hold the same tensor divide the write, but into parts no smaller than this."""


class Box(NamedTuple):
    """A rectangle of a tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The rectangle as an index into its tensor."""
        return tuple(
            slice(begin, begin + length)
            for begin, length in zip(self.offset, self.shape, strict=True)
        )

    def within(self, origin: tuple[int, ...]) -> "Box":
        """Return the same rectangle relative to another origin."""
        offset = tuple(a - b for a, b in zip(self.offset, origin, strict=True))
        return Box(offset, self.shape)

    def overlap(self, other: "Box") -> "Box | None":
        """Return the intersection of two rectangles of one tensor, or None."""
        begins = tuple(map(max, self.offset, other.offset))
        ends = [
            min(a + length_a, b + length_b)
            for a, length_a, b, length_b in zip(*self, *other, strict=True)
        ]
        shape = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
        return Box(begins, shape) if all(length > 0 for length in shape) else None

    def split(self, count: int) -> "list[Box]":
        """Split along the longest dimension into nearly equal parts; fewer if it is short."""
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
    """A rectangle of a named tensor, with this worker's data for it."""

    name: str
    whole: tuple[int, ...]
    """The shape of the full tensor."""
    box: Box
    tensor: torch.Tensor


@dataclass(frozen=True)
class Extent:
    """The position of a worker's local tensor in the full tensor."""

    whole: tuple[int, ...]
    parts: tuple[tuple[Box, tuple[int, ...]], ...]
    """Rectangles of the full tensor, each with its offset in the local tensor."""
    copies: int = 1
    """Number of workers that hold the same data."""
    copy: int = 0
    """This worker's index among them."""

    @classmethod
    def everything(cls, shape: tuple[int, ...]) -> "Extent":
        """Return the extent of a full tensor."""
        origin = (0,) * len(shape)
        return cls(shape, ((Box(origin, shape), origin),))

    @classmethod
    def slice(
        cls, held: tuple[int, ...], dimension: int, pieces: list[range], length: int
    ) -> "Extent":
        """Return the extent of ranges along a dimension, concatenated in the local tensor."""
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
        """Return the extent of these rows of the local tensor."""
        kept = []
        for box, here in self.parts:
            first, last = max(here[0], begin), min(here[0] + box.shape[0], begin + length)
            if first < last:
                offset = (box.offset[0] + first - here[0], *box.offset[1:])
                shape = (last - first, *box.shape[1:])
                kept.append((Box(offset, shape), (first - begin, *here[1:])))
        return replace(self, parts=tuple(kept))

    def among(self, copies: int, copy: int) -> "Extent":
        """Return the same extent, held by `copies` times as many workers."""
        return Extent(self.whole, self.parts, self.copies * copies, self.copy * copies + copy)

    def pieces(self, name: str, local: torch.Tensor) -> Iterator[Piece]:
        """Yield all of a worker's rectangles."""
        for box, here in self.parts:
            yield Piece(name, self.whole, box, _cut(local, Box(here, box.shape)))

    def written(self, name: str, local: torch.Tensor) -> Iterator[Piece]:
        """Yield the pieces that a worker writes. Workers that hold the same data divide it."""
        # Start at an index that depends on the name, to spread small tensors over the workers, too.
        first = zlib.crc32(name.encode())
        for piece in self.pieces(name, local):
            count = min(self.copies, max(1, piece.tensor.nbytes // _SMALLEST_PART_BYTES))
            for number, box in enumerate(piece.box.split(count)):
                if (first + number) % self.copies == self.copy:
                    part = _cut(piece.tensor, box.within(piece.box.offset))
                    yield Piece(name, self.whole, box, part)


def _cut(tensor: torch.Tensor, box: Box) -> torch.Tensor:
    """Return a rectangle of a tensor; the tensor itself if it is all of it, as indexing is slow."""
    return tensor if box.shape == tuple(tensor.shape) else tensor[box.slices]
