"""The first samples of a training, as one batch and divided as workers would divide it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from paceline.data.loader import Batch, collated
from paceline.data.randomness import Seeded
from paceline.user.training import Training

_SAMPLES = 4


@dataclass(frozen=True)
class FewSamples:
    """The first samples of a training, decoded once."""

    training: Training
    samples: Sequence[Any]
    device: torch.device

    @classmethod
    def of(cls, training: Training, device: torch.device) -> "FewSamples":
        """Decode the samples with which the training begins."""
        order = training.sample_order()
        count = min(_SAMPLES, training.first_batch, order.samples)
        if not training.has_index:
            return cls(training, training.first(count), device)
        indices = order.at(0, range(count)).tolist()
        samples = Seeded(training.data, training.seed).__getitems__((0, indices))
        return cls(training, samples, device)

    @property
    def divisions(self) -> list[tuple[int, ...]]:
        """Sizes of the parts to divide the samples into: halves, and unequal parts."""
        count = len(self.samples)
        even = (count // 2, count - count // 2)
        return [each for each in dict.fromkeys([even, (count - 1, 1)]) if min(each) > 0]

    def whole(self) -> Batch:
        """Return all samples as one batch."""
        return self._batch(0, len(self.samples))

    def parts(self, sizes: Sequence[int]) -> list[Batch]:
        """Return the local batches of workers that have this many samples each."""
        edges = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        return [self._batch(begin, end) for begin, end in pairwise(edges)]

    def _batch(self, begin: int, end: int) -> Batch:
        # Each worker collates its own samples: padding may depend on the others in the batch.
        return collated(list(self.samples[begin:end]), self.device, self.training.form)
