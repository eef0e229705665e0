"""Compression: the settings of modes that average gradients or weight changes, and its cost.

The message sizes are repeated here because `encodings` imports torch; a test compares the two.
"""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from paceline.specs import Layout, PacelineError
from paceline.specs.measurements.dry_run import Transfer
from paceline.specs.plans.traffic import NUMBER_BYTES, transfer
from paceline.sync.mode import SyncMode

Compress = Literal["none", "bf16", "int8", "int4", "int2", "topk", "topk2", "sign", "powersgd"]

CHUNK = 4096
"""Numbers per chunk in which `topk` finds the largest."""
PIECE = 1 << 17
"""Numbers encoded at a time, in about as many kernel launches as the encoding costs in copies."""
ASSUMED_WIDTH = 1024
"""Width of the square matrices that `powersgd` is assumed to work on if shapes are unknown."""

_CODES = {
    "bf16": (0, 1, 16),
    "int8": (4, 1024, 8),
    "int4": (2, 256, 4),
    "int2": (4, 256, 2),
    "sign": (4, 1024, 1),
}
"""Bytes of a block's scales, numbers in a block, bits of a number."""
_ENCODE = {"bf16": 3, "int8": 6, "int4": 7, "int2": 25, "sign": 9, "topk": 18, "topk2": 25}
_DECODE = {"bf16": 4, "int8": 3, "int4": 7, "int2": 11, "sign": 4, "topk": 4, "topk2": 6}
"""Cost in copies of the same numbers: measured on one core by `benchmarks.sync.encode`, and
assumed on all other devices."""
_FACTORS = 30.0
"""The same for `powersgd`: assumed."""
_EXTRA_SAMPLES = {
    "int4": 0.03,
    "int2": 0.3,
    "sign": 1.0,
    "topk": 1.0,
    "topk2": 1.0,
    "powersgd": 0.3,
}
"""Additional samples to the loss of a plain all-reduce, as a fraction: ASSUMED of every model but
one, with two workers, a byte-level GPT of 0.14 M parameters, AdamW at one learning rate, 320 steps
and two seeds. There int8 with error feedback took as many steps as the plain sum, int4 1.03 times,
int2 and PowerSGD of rank 4 about 1.3 times, `topk` with 1 % and signs more than twice, because Adam
takes the error feedback for a noisy gradient."""


class CompressedSync(SyncMode):
    """A mode that averages over the replicas, optionally in fewer bits with error feedback."""

    compress: Compress = "none"
    """Message format: 32-bit numbers, fewer bits (`bf16`, `int8`, `int4`, `int2`, `sign`), only the
    largest numbers (`topk`, `topk2` with two bits each), or low-rank factors (`powersgd`)."""
    keep: float = Field(default=0.01, gt=0, le=0.5)
    """Fraction of the numbers that `topk` and `topk2` send."""
    rank: int = Field(default=4, ge=1)
    """Rank of the factors of `powersgd`."""
    feedback: float = Field(default=1.0, ge=0, le=1)
    """Fraction of the compression error that is added to the next message."""
    warmup: int = Field(default=0, ge=0)
    """Initial steps without compression."""

    @property
    def compressed(self) -> bool:
        """Whether messages are compressed."""
        return self.compress != "none"

    @property
    def _with_compression(self) -> str:
        """The phrase appended to the mode's words."""
        return f", compressed to {self.compress}" if self.compressed else ""

    @property
    def _packed(self) -> bool:
        """Whether a number's compression depends on its neighbors."""
        return self.compress not in ("none", "bf16")

    def check(self, layout: Layout) -> None:
        """Reject settings that conflict with each other or with a layout."""
        if self._packed and layout.precision == "fp16":
            raise PacelineError(
                f"compress={self.compress} was given together with precision=fp16: error feedback"
                " carries a gradient from one loss scale to another",
                fix="use --precision bf16, or leave compress out",
            )
        super().check(layout)

    def check_shared_weights(self, model: str) -> None:
        """Reject compression under which stages would change a shared weight differently."""
        if self._packed:
            raise PacelineError(
                f"compress={self.compress} was given together with pipeline, but stages of {model}"
                " share a weight, and each would compress it together with different numbers",
                fix="leave it out (compress=bf16 is possible), or use shards or tensor in place of"
                " pipeline",
            )

    @property
    def residual_bytes(self) -> int:
        """Bytes of the compression error per parameter."""
        return NUMBER_BYTES if self.compressed and self.feedback > 0 else 0

    @property
    def compression_samples(self) -> float:
        """Additional samples to the same loss, as a fraction: assumed."""
        return _EXTRA_SAMPLES.get(self.compress, 0.0)

    def message_bytes(self, elements: int) -> int:
        """Return the size of a message with `elements` numbers."""
        if self.compress in ("topk", "topk2"):
            whole, left = divmod(elements, CHUNK)
            kept = whole * self._kept(CHUNK) + (self._kept(left) if left else 0)
            places = kept + -(-kept // 2)
            if self.compress == "topk":
                return 2 * kept + places
            return 4 * -(-elements // CHUNK) + 2 * -(-kept // 8) + places
        scale_bytes, block, bits = _CODES[self.compress]
        of_numbers = 2 * -(-elements // 8) if bits == 2 else -(-elements * bits // 8)
        return scale_bytes * -(-elements // block) + of_numbers

    def mean_transfers(
        self, workers: int, elements: int, count: int, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[Transfer, ...]:
        """Return the transfers of `count` means over the workers, as `averaging.py` takes them."""
        if not self.compressed:
            return (transfer("all-reduce", workers, NUMBER_BYTES * elements, count),)
        if self.compress == "bf16":
            return (transfer("all-reduce", workers, 2 * elements, count),)
        if self.compress == "powersgd":
            factors = _factor_elements(self.rank, elements, shapes)
            return tuple(transfer("all-reduce", workers, NUMBER_BYTES * n, count) for n in factors)
        if self.compress in ("topk", "topk2"):
            gathered = workers * self.message_bytes(elements)
            return (transfer("all-gather", workers, gathered, count),)
        parts = workers * self.message_bytes(-(-elements // workers))
        return (
            transfer("all-to-all", workers, parts, count),
            transfer("all-gather", workers, parts, count),
        )

    def coding_copies(self, workers: int) -> float:
        """Return the cost of encoding, decoding and error feedback, in copies of all numbers."""
        if not self.compressed:
            return 0.0
        if self.compress == "powersgd":
            return _FACTORS
        encode, decode = _ENCODE[self.compress], _DECODE[self.compress]
        if self.compress == "bf16":
            return encode + decode
        if self.compress in ("topk", "topk2"):  # every message covers all numbers
            return encode + (1 + workers) * decode
        # All parts once for their sums, once as means, and once for the compression error.
        return (1 + 1 / workers) * encode + (3 + 1 / workers) * decode

    def _kept(self, elements: int) -> int:
        return max(1, round(self.keep * elements))


def _factor_elements(
    rank: int, elements: int, shapes: Sequence[tuple[int, ...]]
) -> tuple[int, int]:
    """Return the size of the left factors with unfactored tensors, and of the right factors."""
    if not shapes:
        factors = min(elements, round(rank * elements / ASSUMED_WIDTH))
        return factors, factors
    left = right = 0
    for shape in shapes:
        rows, columns = shape[0], math.prod(shape[1:])
        if len(shape) > 1 and rank * (rows + columns) < rows * columns:
            left, right = left + rank * rows, right + rank * columns
        else:
            left += rows * columns
    part = elements / sum(math.prod(shape) for shape in shapes)
    return round(part * left), round(part * right)
