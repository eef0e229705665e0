"""Two bytes for each number: sign, exponent and seven bits of its mantissa."""

import torch

from paceline.sync.encodings.bits import read_as


class Bf16:
    """Each number rounded to bf16: half the size, with a relative error of up to 1/256."""

    def message_bytes(self, elements: int) -> int:
        """Return 2 bytes for each element."""
        return 2 * elements

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Round to bf16."""
        return values.bfloat16().view(torch.uint8)

    def decode(self, message: torch.Tensor, elements: int) -> torch.Tensor:
        """Convert to fp32, which is exact."""
        return read_as(message, torch.bfloat16).float()
