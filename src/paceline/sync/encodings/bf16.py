"""Two bytes for each number: its exponent and seven bits of its mantissa."""

import torch

from paceline.sync.encodings.bits import read_as


class Bf16:
    """Each number rounded to the nearest of bf16: twice as small, a relative error up to 1/256."""

    def message_bytes(self, elements: int) -> int:
        """Two for each element."""
        return 2 * elements

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Round."""
        return values.bfloat16().view(torch.uint8)

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Widen: exact."""
        return read_as(message, torch.bfloat16).float()
