"""Only the largest numbers of each chunk of 4096, with their places."""

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
    """The largest numbers in bf16: with one in a hundred, 114 times smaller.

    Not in fp16 with a scale for each chunk, which rounds finer. What is dropped is most of the
    whole, and the rounding of bf16 a millionth of it; the bytes of a scale are better spent on one
    more number. And bf16 holds the smallest and largest gradients without any scale.
    """

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def message_bytes(self, elements: int) -> int:
        """Two bytes and 12 bits for each that is kept."""
        kept = kept_of_all(elements, self._keep)
        return 2 * kept + index_bytes(kept)

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers, then indices."""
        numbers, indices = largest(values, self._keep)
        return torch.cat([numbers.bfloat16().view(torch.uint8), pack_indices(indices)])

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Put the numbers back, among zeros."""
        kept = kept_of_all(elements, self._keep)
        numbers = read_as(message[: 2 * kept], torch.bfloat16).float()
        indices = unpack_indices(message[2 * kept :], kept)
        return put_back(numbers, indices, elements, self._keep)


class TopK2:
    """The largest numbers as a sign and one of two levels: with 64 of 4096, 141 times smaller."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def message_bytes(self, elements: int) -> int:
        """Two levels for each chunk, two bits and 12 bits for each that is kept."""
        return sum(self._sizes(elements))

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Levels, signs, which level it is, indices."""
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
        """Look up each level, give it its sign, and put it back among zeros."""
        kept = kept_of_all(elements, self._keep)
        levels, signs, uppers, indices = torch.split(message, self._sizes(elements))
        of_chunk = read_as(levels, torch.bfloat16).view(-1, 2)
        numbers = unpack_bits(uppers, kept)
        for piece in pieces(kept, kept_of(CHUNK, self._keep)):
            from_levels(of_chunk[piece.block_range], piece.of(numbers))
        numbers *= unpack_signs(signs, kept)
        return put_back(numbers, unpack_indices(indices, kept), elements, self._keep)

    def _sizes(self, elements: int) -> list[int]:
        """Bytes of each part of the message."""
        kept = kept_of_all(elements, self._keep)
        levels = LEVEL_BYTES * block_count(elements, CHUNK)
        return [levels, bit_bytes(kept), bit_bytes(kept), index_bytes(kept)]
