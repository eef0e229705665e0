"""Choose the mode that reaches a loss soonest, from measured step time and link speed.

It reasons as the planner does and on the same candidates, but from measurements instead of
predictions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.specs import SyncSettings, sync_candidates
from paceline.specs.plans.traffic import ReplicatedPart, Traffic

ENCODING = 0.3
"""Cost of encoding every gradient, as a fraction of a step's computation: two workers of the
byte-level GPT took 24 to 28 ms/step with int8 and 21 with DDP, over links that cost nothing."""
PLAIN = 1.02
"""Candidates within this factor count as equal; the one with the fewest assumed samples wins."""
WORTH = 1.05
"""Predicted speed-up to the loss above which `auto` changes to another mode."""


@dataclass(frozen=True)
class Measured:
    """Measurements of some steps, the mean over the workers."""

    compute_seconds: float
    """Computation time of a step, without waiting for others."""
    bytes_per_second: float
    """Rate at which a worker sends while it communicates."""
    latency_seconds: float = 0.0
    """Latency of a collective with next to no bytes."""


@dataclass(frozen=True)
class Choice:
    """A mode and its prediction."""

    sync: SyncSettings
    step_seconds: float
    extra: float
    """Samples to the same loss, relative to a plain all-reduce."""

    @property
    def cost(self) -> float:
        """Seconds to make as much progress as one step of a plain all-reduce."""
        return self.step_seconds * self.extra


def candidates(measured: Measured, workers: int, parameters: int) -> Iterator[SyncSettings]:
    """Yield the candidates of all modes, with the overlap that the measurements call for."""
    for each in sync_candidates():
        seconds = _round_seconds(each.traffic(ReplicatedPart(workers, parameters)), measured)
        # As many steps as a round takes, and one more as a margin.
        yield each.overlapping(math.ceil(seconds / measured.compute_seconds) + 1)


def best(measured: Measured, workers: int, parameters: int) -> Choice:
    """Return the candidate with the lowest cost; among about equal ones, the first."""
    found: Choice | None = None
    for sync in candidates(measured, workers, parameters):
        choice = predicted(sync, measured, workers, parameters)
        if found is None or choice.cost * PLAIN < found.cost:
            found = choice
    assert found is not None
    return found


def predicted(sync: SyncSettings, measured: Measured, workers: int, parameters: int) -> Choice:
    """Predict the mean time of a step in a mode."""
    traffic = sync.traffic(ReplicatedPart(workers, parameters))
    seconds, compute = _round_seconds(traffic, measured), measured.compute_seconds
    if sync.replicas_differ:
        exposed = max(0.0, seconds - traffic.overlapped_steps * compute) * traffic.per_step
    else:
        # Backward, two thirds of a step, overlaps communication from its first bucket on.
        exposed = max(0.1 * seconds, seconds - 0.5 * compute)
        exposed += ENCODING * compute if traffic.device_bytes else 0.0
    return Choice(sync, compute + exposed, sync.extra_samples(workers))


def _round_seconds(traffic: Traffic, measured: Measured) -> float:
    calls = sum(each.count for each in traffic.transfers)
    sending = traffic.bytes_per_step / traffic.per_step / measured.bytes_per_second
    return sending + calls * measured.latency_seconds
