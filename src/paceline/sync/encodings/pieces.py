"""Going through a long tensor in pieces that stay in the processor's cache.

Each operation of torch goes through its whole input. Ten of them over 16 MB wait for memory ten
times; over pieces of half a megabyte they wait once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

PIECE_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class Piece:
    """Some blocks of equal width that follow each other in a flat tensor."""

    begin: int
    """The first element."""
    first_block: int
    blocks: int
    width: int

    @property
    def end(self) -> int:
        """The element after the last one."""
        return self.begin + self.blocks * self.width

    @property
    def block_range(self) -> slice:
        """These blocks, among all."""
        return slice(self.first_block, self.first_block + self.blocks)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements of a flat tensor, a row for each block."""
        return flat[self.begin : self.end].view(self.blocks, self.width)

    def room_in(self, scratch: torch.Tensor) -> torch.Tensor:
        """As many elements, a row for each block, in memory that all pieces share."""
        return scratch[: self.end - self.begin].view(self.blocks, self.width)


def pieces(elements: int, block: int) -> Iterator[Piece]:
    """Pieces of whole blocks, then one with what is left, as a shorter block."""
    whole = elements // block
    at_once = PIECE_ELEMENTS // block
    for first in range(0, whole, at_once):
        yield Piece(first * block, first, min(at_once, whole - first), block)
    if elements % block:
        yield Piece(whole * block, whole, 1, elements % block)


def scratch_for(values: torch.Tensor) -> torch.Tensor:
    """Memory for one piece: new memory for each would cost a third of the speed."""
    return torch.empty(min(len(values), PIECE_ELEMENTS), device=values.device)


def block_count(elements: int, block: int) -> int:
    """How many blocks there are, with the shorter one at the end."""
    return -(-elements // block)
