"""The length of a training by batch: steps and samples to the same loss."""

import math
from dataclasses import dataclass, replace
from statistics import fmean

from paceline.learning.critical_batch import likely, samples_times
from paceline.specs import CriticalBatch


@dataclass(frozen=True)
class TrainingLength:
    """How long a training is with its own batch, and with others.

    A larger batch needs more samples to the same loss, by its critical batch; the mean over the
    critical batches that are likely. If none is known, the number of samples stays the same.
    """

    batch: int
    steps: int
    critical: CriticalBatch | None = None

    def samples_times(self, batch: int) -> float:
        """Return the samples that a batch needs, relative to the training's own."""
        values = likely(self.critical) if self.critical else []
        return fmean(samples_times(batch, self.batch, each) for each in values) if values else 1.0

    def steps_with(self, batch: int) -> int:
        """Return the steps with a batch to the same loss."""
        # Rounding must not add a step where the product is a whole number.
        steps = self.steps * self.batch / batch * self.samples_times(batch)
        return math.ceil(round(steps, 6))

    def if_critical_were(self, times: float) -> "TrainingLength":
        """Return the length for a critical batch that is larger by a factor, with its interval."""
        found = self.critical
        assert found is not None, "the factor of an unknown number"
        return replace(
            self,
            critical=CriticalBatch(
                value=None if found.value is None else times * found.value,
                low=times * found.low,
                high=None if found.high is None else times * found.high,
            ),
        )
