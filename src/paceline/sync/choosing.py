"""Which way to agree reaches a loss soonest, by what a step and an exchange were measured to take.

The same reasoning as the planner's, on what is seen instead of what is expected.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from paceline.specs import Sync
from paceline.sync.costs import extra_samples, traffic

STEPS_ALONE = (4, 8, 16, 32, 64)
"""Steps between two exchanges that are tried."""
OUTER_MOMENTUM = 0.5
"""Two workers of the byte-level GPT (0.14 M parameters, 16 steps alone, two seeds) come to a loss
of 2.10 in 320 steps with it, with DiLoCo's 0.9 and with none to 2.14; with the mean gradient to
2.05."""
ENCODING = 0.3
"""Of what a step computes, what encoding every gradient takes from it: two workers of the same
model took 24 to 28 ms a step with int8 where DDP took 21, on links that cost nothing."""
PLAIN = 1.02
"""Ways that are predicted to be about as good, of which the plainest is taken."""
WORTH = 1.05
"""How much sooner another way must be predicted to reach the loss, for a change to it."""


@dataclass(frozen=True)
class Measured:
    """What some steps took, the mean over the workers."""

    compute_seconds: float
    """Of a step, without waiting for others."""
    bytes_per_second: float
    """That a worker sends while it exchanges."""
    latency_seconds: float = 0.0
    """Of a collective that carries next to nothing."""


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
        for every in STEPS_ALONE:
            alone = _alone(every, compress, overlap=0)
            # As long under way as it takes, and one more step for what cannot be foreseen.
            seconds = _exchange_seconds(alone, measured, workers, parameters)
            overlap = math.ceil(seconds / measured.compute_seconds) + 1
            yield _alone(every, compress, overlap=min(overlap, every // 4))


def _alone(every: int, compress: Literal["none", "int8"], *, overlap: int) -> Sync:
    return Sync(
        mode="diloco",
        every=every,
        compress=compress,
        overlap=overlap,
        outer_momentum=OUTER_MOMENTUM,
    )


def best(measured: Measured, workers: int, parameters: int) -> Choice:
    """The choice; the plainest of those that are about as good."""
    found: Choice | None = None
    for sync in candidates(measured, workers, parameters):
        choice = predicted(sync, measured, workers, parameters)
        if found is None or choice.cost * PLAIN < found.cost:
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
        exposed += ENCODING * compute if sync.compress != "none" else 0.0
    else:
        exposed = max(0.0, exchange - sync.overlap * compute) / sync.every
    return Choice(sync, compute + exposed, extra_samples(sync, workers))


def _exchange_seconds(sync: Sync, measured: Measured, workers: int, parameters: int) -> float:
    sent = traffic(sync, workers, parameters)
    calls = sum(each.count for each in sent.transfers)
    carried = sent.bytes_per_step / sent.per_step / measured.bytes_per_second
    return carried + calls * measured.latency_seconds
