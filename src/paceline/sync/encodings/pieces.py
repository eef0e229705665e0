"""Process a long tensor in pieces that fit the processor's cache.

Each torch operation reads its whole input. Ten operations on 16 MB wait for memory ten times; on
pieces of half a megabyte they wait once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

PIECE_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class Piece:
    """Consecutive blocks of equal width in a flat tensor."""

    begin: int
    """Index of the first element."""
    first_block: int
    blocks: int
    width: int

    @property
    def end(self) -> int:
        """Index after the last element."""
        return self.begin + self.blocks * self.width

    @property
    def block_range(self) -> slice:
        """The slice of these blocks among all."""
        return slice(self.first_block, self.first_block + self.blocks)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Return this piece of a flat tensor, one row per block."""
        return flat[self.begin : self.end].view(self.blocks, self.width)

    def room_in(self, scratch: torch.Tensor) -> torch.Tensor:
        """Return scratch memory of this piece's shape, which all pieces share."""
        return scratch[: self.end - self.begin].view(self.blocks, self.width)


def pieces(elements: int, block: int) -> Iterator[Piece]:
    """Yield pieces of full blocks, then one with the remainder as a shorter block."""
    whole = elements // block
    at_once = PIECE_ELEMENTS // block
    for first in range(0, whole, at_once):
        yield Piece(first * block, first, min(at_once, whole - first), block)
    if elements % block:
        yield Piece(whole * block, whole, 1, elements % block)


def scratch_for(values: torch.Tensor) -> torch.Tensor:
    """Allocate memory for one piece; allocating it for each would cost a third of the speed."""
    return torch.empty(min(len(values), PIECE_ELEMENTS), device=values.device)


def block_count(elements: int, block: int) -> int:
    """Return the number of blocks, including the shorter last one."""
    return -(-elements // block)
