"""Result of a batch study: how large a batch learns as well, and what it costs to a loss."""

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.interval import Interval
from paceline.specs.measurements.learning import CriticalBatch


class BatchCost(Spec):
    """What one batch takes to the target loss; intervals over the seeds."""

    point: NonNegativeInt
    """Index of its point in the study."""
    batch: PositiveInt
    samples: Interval
    steps: Interval
    seconds: Interval | None
    """None without a measured throughput."""
    predicted_samples: PositiveFloat | None
    """From the noise scale of the base's runs, and the base's measured samples."""


class LargerBatches(Spec):
    """A batch study beyond its comparisons."""

    largest: PositiveInt | None
    """The largest factor that is as good, as all smaller ones are; None if not even the smallest
    is, or if a verdict on it is missing."""
    target_loss: float | None
    """Training loss that every run below reached; None if some diverged or ended above the loss
    that the base began with, or if none has finished."""
    costs: tuple[BatchCost, ...] = ()
    measured: CriticalBatch | None = None
    """Fitted to the samples that the batches took to the target, by seed."""
    predicted: PositiveFloat | None = None
    """From the noise scale of the base's runs, mean over the seeds."""
