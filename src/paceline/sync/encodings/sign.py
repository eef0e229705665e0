"""One bit for each number: its sign."""

import torch

from paceline.sync.encodings.bits import bit_bytes, pack_bits, read_as, unpack_signs
from paceline.sync.encodings.pieces import block_count, pieces, scratch_for


class Sign:
    """Signs, times the mean magnitude of a block of 1024: 31 times smaller.

    The mean magnitude is the scale with the least squared error. Zero counts as positive.
    """

    block = 1024

    def message_bytes(self, elements: int) -> int:
        """Return 4 bytes for each block's scale and a bit for each element."""
        return 4 * block_count(elements, self.block) + bit_bytes(elements)

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Write the scales, then the signs."""
        message = values.new_empty(self.message_bytes(len(values)), dtype=torch.uint8)
        scales, signs = self._parts(message, len(values))
        scratch = scratch_for(values)
        for piece in pieces(len(values), self.block):
            rows = piece.of(values)
            magnitudes = torch.abs(rows, out=piece.room_in(scratch))
            scales[piece.block_range] = magnitudes.mean(1, keepdim=True)
            # Written as fp32, because torch is slow at comparing into booleans.
            positive = torch.ge(rows, 0, out=magnitudes)
            signs[piece.begin // 8 : bit_bytes(piece.end)] = pack_bits(positive.view(-1))
        return message

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Multiply each sign by its block's scale."""
        scales, signs = self._parts(message, elements)
        values = torch.empty(elements, device=message.device)
        for piece in pieces(elements, self.block):
            packed = signs[piece.begin // 8 : bit_bytes(piece.end)]
            plus_minus = unpack_signs(packed, piece.end - piece.begin).view(-1, piece.width)
            torch.mul(plus_minus, scales[piece.block_range], out=piece.of(values))
        return values

    def _parts(self, message: torch.Tensor, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = 4 * block_count(elements, self.block)
        return read_as(message[:end], torch.float32).view(-1, 1), message[end:]
