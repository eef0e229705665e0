"""Whether the measured gradient noise supports a larger batch.

A batch far below the noise scale loses next to nothing by doubling, and one above it mostly spends
samples. So the batch doubles only while the doubled one is below the lower end of the interval of
the noise scale. It never shrinks, and each size is measured anew before the next decision.
"""

from collections.abc import Sequence

from paceline.learning.noise_scale import NoiseSums

WINDOW = 20
"""Measured steps of one decision: the noise scale drifts, so that older ones understate it."""

Row = tuple[float, float, float]
"""Weight of a step's batch, variance and signal."""


def doubled(batch: int, to: int) -> int:
    """Return the next larger batch, at most `to`."""
    return min(2 * batch, to)


def sizes(first: int, to: int) -> list[int]:
    """Return all batches that a growth may come to."""
    found = [first]
    while found[-1] < to:
        found.append(doubled(found[-1], to))
    return found


def is_supported(window: Sequence[Row], batch: int, larger: int) -> bool:
    """Return whether steps with a batch show enough noise for a larger one."""
    weight_per_sample = max(weight for weight, _, _ in window) / batch
    return NoiseSums.of(window).scale().low >= larger * weight_per_sample
