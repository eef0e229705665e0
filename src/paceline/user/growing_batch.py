"""A global batch that grows: at given samples, or by the measured gradient noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.data.batch_stages import BatchStages
from paceline.learning.critical_batch import samples_times
from paceline.specs import PacelineError

Plan = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Growth:
    """A batch that doubles while the gradient noise supports it."""

    first: int
    to: int
    """The largest batch."""


def grow(first: int, *, to: int) -> Growth:
    """Return a global batch that begins with `first` samples and doubles, up to `to`, whenever the
    measured gradient noise scale is at least the doubled batch."""
    for name, value in (("first", first), ("to", to)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PacelineError(
                f"paceline.grow({name}={value!r}) is no number of samples",
                fix="give integers of at least 1, such as paceline.grow(128, to=4096)",
            )
    if to <= first:
        raise PacelineError(
            f"paceline.grow({first}, to={to}) cannot grow",
            fix=f"give a larger `to`, or batch={first} for a constant batch",
        )
    return Growth(first, to)


Batch = int | Mapping[int, int] | Growth
"""Samples per step: always, from each of these positions on, or by the noise."""


def plan_of(batch: Batch) -> Plan:
    """Return the stages of a batch that are known before training."""
    if isinstance(batch, int):
        return ((0, batch),)
    if isinstance(batch, Growth):
        return ((0, batch.first),)
    return tuple(sorted(batch.items()))


def check_stages(batch: Mapping[Any, Any]) -> None:
    """Raise unless a batch by position has whole positive numbers and begins with sample 0."""
    for position, size in batch.items():
        if not all(type(each) is int for each in (position, size)) or position < 0 or size < 1:
            raise PacelineError(
                f"Training(batch={{{position!r}: {size!r}}}) names no batch from a sample on",
                fix="give integers, such as batch={0: 128, 1_000_000: 512}",
            )
    if 0 not in batch:
        raise PacelineError(
            f"Training(batch={dict(batch)!r}) does not say with which batch training begins",
            fix="give the batch from sample 0 on, such as batch={0: 128, 1_000_000: 512}",
        )


def check_can_grow(
    batch: Batch, *, makes_data: bool, phases: bool, noise_every: int | None
) -> None:
    """Raise if a training cannot change its batch, or not by the noise."""
    if isinstance(batch, int):
        return
    if makes_data:
        raise PacelineError(
            "Training(batch=…) grows, but with data=None your own loop makes the batches",
            fix="give one number, and make larger batches in the loop",
        )
    if not isinstance(batch, Growth):
        return
    if phases:
        raise PacelineError(
            "paceline.grow was given with phases, whose gradient noise is not measured",
            fix="give the batch by sample, such as batch={0: 128, 1_000_000: 512}",
        )
    if noise_every == 0:
        raise PacelineError(
            "paceline.grow was given with noise_every=0, which measures no gradient noise",
            fix="leave noise_every out, or give the batch by sample: batch={0: 128, …}",
        )


def in_words(batch: Batch) -> str:
    """Return a batch in words: its first size, and how it grows."""
    if isinstance(batch, Growth):
        return f"{batch.first:,}, growing up to {batch.to:,} with the gradient noise"
    (_, first), *later = plan_of(batch)
    changes = [f"from sample {position:,} on {size:,}" for position, size in later]
    return ", ".join([f"{first:,}", *changes])


@dataclass(frozen=True)
class TunedSamples:
    """The samples of the tuned batch that those of larger batches are worth.

    A larger batch needs more samples to the same loss, if the critical batch is known.
    """

    tuned_at: int | None
    critical: float | None

    def at(self, stages: BatchStages, position: int) -> int:
        """Return the tuned samples that the samples before a position are worth."""
        parts = [
            (position if end is None else min(end, position)) - begin
            for begin, end, _ in stages.spans()
        ]
        worth = zip(parts, stages.spans(), strict=True)
        return math.floor(
            math.fsum(part / self._times(batch) for part, (_, _, batch) in worth if part > 0) + 1e-6
        )

    def position(self, stages: BatchStages, samples: int) -> int:
        """Return the position at which these tuned samples are reached."""
        left = float(samples)
        for begin, end, batch in stages.spans():
            times = self._times(batch)
            if end is None or left * times <= end - begin:
                return begin + math.ceil(left * times - 1e-6)
            left -= (end - begin) / times
        raise AssertionError

    def _times(self, batch: int) -> float:
        if self.tuned_at is None or self.critical is None:
            return 1.0
        return samples_times(batch, self.tuned_at, self.critical)
