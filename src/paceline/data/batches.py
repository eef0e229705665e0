"""Global batches as ranges of positions, and each worker's exact share of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from paceline.data.order import Order
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Counts:
    """How many samples of a global batch count, here and in all."""

    samples: int
    """This worker's; 0 where the batch has fewer samples than there are workers."""
    global_samples: int


@dataclass(frozen=True)
class Batches:
    """The global batches of a training, divided over `workers`.

    The last batch of an epoch holds what is left, as in a plain PyTorch loader. A worker that gets
    nothing of it borrows one sample that counts for nothing.
    """

    order: Order
    batch: int
    steps: int
    workers: int
    rank: int
    speeds: tuple[float, ...] | None = None
    """The workers' relative speeds, where their shares are to follow these."""

    def __post_init__(self) -> None:
        if self.batch < self.workers:
            raise PacelineError(
                f"the global batch is {self.batch}, but there are {self.workers} workers:"
                " some would have no sample at all",
                fix=f"use at most {self.batch} workers, or a batch of at least {self.workers}",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one pass over the data."""
        return -(-self.order.samples // self.batch)

    def counts(self, step: int) -> Counts:
        """The size of this worker's part of a batch and of the whole; steps count from 0."""
        _, global_samples = self._extent(step)
        return Counts(len(self._slice(global_samples)), global_samples)

    def indices(self, step: int) -> list[int]:
        """The samples to load for a step: never none, so that every worker has a gradient."""
        begin, global_samples = self._extent(step)
        mine = self._slice(global_samples) or range(1)
        positions = range(begin + mine.start, begin + mine.stop)
        indices: list[int] = self.order.at(step // self.steps_per_epoch, positions).tolist()
        return indices

    def largest_share(self, global_samples: int) -> int:
        """The most samples that any worker has of a batch of this size."""
        if self.speeds is None:
            return -(-global_samples // self.workers)
        return max(len(part) for part in slices_by_speed(global_samples, self.speeds))

    def _slice(self, global_samples: int) -> range:
        if self.speeds is None:
            return slice_of(global_samples, self.workers, self.rank)
        return slices_by_speed(global_samples, self.speeds)[self.rank]

    def _extent(self, step: int) -> tuple[int, int]:
        begin = step % self.steps_per_epoch * self.batch
        return begin, min(self.batch, self.order.samples - begin)

    def __iter__(self) -> Iterator[list[int]]:
        return (self.indices(step) for step in range(self.steps))

    def __len__(self) -> int:
        return self.steps


def slice_of(samples: int, workers: int, rank: int) -> range:
    """The slice of a batch that belongs to a worker; sizes differ by one at the most."""
    size, more = divmod(samples, workers)
    begin = rank * size + min(rank, more)
    return range(begin, begin + size + (rank < more))


def slices_by_speed(samples: int, speeds: tuple[float, ...]) -> list[range]:
    """Slices of a batch in proportion to the workers' speeds, each within one sample of it."""
    total = math.fsum(speeds)
    edges = [round(samples * part / total) for part in accumulate(speeds)]
    edges[-1] = samples  # whatever the rounding of the sum
    return [range(begin, end) for begin, end in pairwise([0, *edges])]
