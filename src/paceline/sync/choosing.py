"""Which way to agree reaches a loss soonest, by what a step and an exchange were measured to take.

The same reasoning as the planner's, on what is seen instead of what is expected.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.specs import Sync
from paceline.sync.costs import extra_samples, traffic

LONGEST = 64
"""Steps between two exchanges, beyond which nothing is tried."""
WORTH = 1.05
"""How much sooner another way must be predicted to reach the loss, for a change to it."""


@dataclass(frozen=True)
class Measured:
    """What some steps took, the mean over the workers."""

    compute_seconds: float
    """Of a step, without waiting for others."""
    bytes_per_second: float
    """That a worker sent while it exchanged."""


@dataclass(frozen=True)
class Choice:
    """A way to agree, and what it is predicted to take."""

    sync: Sync
    step_seconds: float
    extra: float
    """Times as many samples as with a mean gradient in every step."""

    @property
    def cost(self) -> float:
        """Seconds for as much progress as a step with a mean gradient makes."""
        return self.step_seconds * self.extra


def candidates(measured: Measured, workers: int, parameters: int) -> Iterator[Sync]:
    """Ways to agree, the plainest first."""
    yield Sync()
    yield Sync(compress="int8")
    yield Sync(compress="int4")
    for compress in ("none", "int8"):
        every = 4
        while every <= LONGEST:
            # As long under way as it takes, and one more step for what cannot be foreseen.
            alone = Sync(mode="local", every=every, compress=compress)
            seconds = _exchange_seconds(alone, measured, workers, parameters)
            overlap = math.ceil(seconds / measured.compute_seconds) + 1
            if overlap < every:
                yield Sync(mode="local", every=every, compress=compress, overlap=overlap)
            every *= 2
    yield Sync(mode="local", every=LONGEST, compress="int8")


def best(measured: Measured, workers: int, parameters: int) -> Choice:
    """The choice; the plainest of those that are about as good."""
    found: Choice | None = None
    for sync in candidates(measured, workers, parameters):
        choice = predicted(sync, measured, workers, parameters)
        if found is None or choice.cost * WORTH < found.cost:
            found = choice
    assert found is not None
    return found


def predicted(sync: Sync, measured: Measured, workers: int, parameters: int) -> Choice:
    """What a way to agree takes on average in a step."""
    exchange = _exchange_seconds(sync, measured, workers, parameters)
    compute = measured.compute_seconds
    if sync.mode == "allreduce":
        # Backward, two thirds of a step, hides an exchange from its first bucket on.
        exposed = max(0.1 * exchange, exchange - 0.5 * compute)
    else:
        exposed = max(0.0, exchange - sync.overlap * compute) / sync.every
    return Choice(sync, compute + exposed, extra_samples(sync, workers))


def _exchange_seconds(sync: Sync, measured: Measured, workers: int, parameters: int) -> float:
    sent = traffic(sync, workers, parameters)
    return sent.bytes_per_step / sent.per_step / measured.bytes_per_second
