"""The largest numbers of each chunk of 4096, with their indices."""

import torch

from paceline.sync.encodings.bits import (
    bit_bytes,
    index_bytes,
    pack_bits,
    pack_indices,
    read_as,
    unpack_bits,
    unpack_indices,
    unpack_signs,
)
from paceline.sync.encodings.largest import CHUNK, kept_of, kept_of_all, largest, put_back
from paceline.sync.encodings.levels import LEVEL_BYTES, from_levels, two_levels
from paceline.sync.encodings.pieces import block_count, pieces


class TopK:
    """The largest numbers in bf16; keeping one in a hundred makes the message 114 times smaller.

    fp16 with a scale for each chunk would round finer, but the dropped numbers are most of the
    tensor, and bf16 rounding a millionth of it. The bytes of a scale are better spent on one more
    number. And bf16 represents the smallest and largest gradients without a scale.
    """

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def message_bytes(self, elements: int) -> int:
        """Return 2 bytes and 12 bits for each kept number."""
        kept = kept_of_all(elements, self._keep)
        return 2 * kept + index_bytes(kept)

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Write the numbers, then the indices."""
        numbers, indices = largest(values, self._keep)
        return torch.cat([numbers.bfloat16().view(torch.uint8), pack_indices(indices)])

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Put the numbers back, with zeros elsewhere."""
        kept = kept_of_all(elements, self._keep)
        numbers = read_as(message[: 2 * kept], torch.bfloat16).float()
        indices = unpack_indices(message[2 * kept :], kept)
        return put_back(numbers, indices, elements, self._keep)


class TopK2:
    """The largest numbers as a sign and one of two levels; with 64 of 4096, 141 times smaller."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def message_bytes(self, elements: int) -> int:
        """Return the size: two levels for each chunk, and 2 + 12 bits for each kept number."""
        return sum(self._sizes(elements))

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Write the levels, the signs, the choices of level, and the indices."""
        numbers, indices = largest(values, self._keep)
        magnitudes = numbers.abs()
        uppers, scratch = torch.empty_like(magnitudes), torch.empty_like(magnitudes)
        levels = [
            two_levels(piece.of(magnitudes), piece.of(uppers), piece.of(scratch)).view(-1)
            for piece in pieces(len(numbers), kept_of(CHUNK, self._keep))
        ]
        parts = [pack_bits((numbers >= 0).float()), pack_bits(uppers), pack_indices(indices)]
        return torch.cat([torch.cat(levels).view(torch.uint8), *parts])

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Look up each level, apply its sign, and put it back, with zeros elsewhere."""
        kept = kept_of_all(elements, self._keep)
        levels, signs, uppers, indices = torch.split(message, self._sizes(elements))
        of_chunk = read_as(levels, torch.bfloat16).view(-1, 2)
        numbers = unpack_bits(uppers, kept)
        for piece in pieces(kept, kept_of(CHUNK, self._keep)):
            from_levels(of_chunk[piece.block_range], piece.of(numbers))
        numbers *= unpack_signs(signs, kept)
        return put_back(numbers, unpack_indices(indices, kept), elements, self._keep)

    def _sizes(self, elements: int) -> list[int]:
        """Return the size in bytes of each part of the message."""
        kept = kept_of_all(elements, self._keep)
        levels = LEVEL_BYTES * block_count(elements, CHUNK)
        return [levels, bit_bytes(kept), bit_bytes(kept), index_bytes(kept)]
