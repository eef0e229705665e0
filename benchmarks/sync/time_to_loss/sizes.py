"""The models that learn, and what is usual for them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Of a byte-level GPT."""

    layers: int
    width: int
    heads: int
    batch: int
    """Samples of a step over all ranks."""
    rate: float
    """Learning rate of AdamW, of which trials take a multiple."""
    target: float
    """The loss that is to be reached."""
    expected_steps: int
    """About as many lead to it."""


SIZES = {
    "small": Size(2, 64, 2, batch=32, rate=4e-3, target=2.2, expected_steps=250),
    "main": Size(4, 128, 4, batch=16, rate=2e-3, target=2.4, expected_steps=160),
}
"""0.14 and 0.87 million parameters."""
