"""Offset of a node's clock from the clock of worker 0's node.

A worker asks worker 0 for the time several times, takes the fastest round trip, and assumes that
worker 0 answered in its middle (F. Cristian, "Probabilistic clock synchronization", 1989). The
error is at most half the round-trip time, however asymmetric the network is.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from paceline.comm.groups import Groups

EXCHANGES = 10


@dataclass(frozen=True)
class ClockOffset:
    """Subtract this from a local time to get the time on worker 0's node."""

    seconds: float = 0.0
    uncertainty_seconds: float = 0.0
    """Upper bound on the error of `seconds`."""


def clock_offset(
    groups: Groups, ranks: Collection[int], now: Callable[[], float] = time.time
) -> ClockOffset:
    """Return this worker's clock offset. All `ranks`, which include 0, call this together.

    One worker per node measures the offset and shares it with the other workers of its node.
    Worker 0 serves one node at a time, so that no answer waits for another.
    """
    placement = groups.placement
    nodes = {rank // placement.local_workers: rank for rank in sorted(ranks, reverse=True)}
    asking = [rank for rank in sorted(nodes.values()) if rank]
    if placement.rank == 0:
        for rank in asking:
            for number in range(EXCHANGES):
                groups.read_published(f"clock/{rank}/{number}/asked")
                groups.publish(f"clock/{rank}/{number}/time", json.dumps(now()))
        return ClockOffset()
    speaker = nodes[placement.rank // placement.local_workers]
    if speaker == 0:
        return ClockOffset()
    if placement.rank != speaker:
        return ClockOffset(*json.loads(groups.read_published(f"clock/{speaker}/offset")))
    exchanges = [_asked(groups, number, now) for number in range(EXCHANGES)]
    best = min(exchanges, key=lambda each: each.uncertainty_seconds)
    groups.publish(f"clock/{speaker}/offset", json.dumps([best.seconds, best.uncertainty_seconds]))
    return best


def _asked(groups: Groups, number: int, now: Callable[[], float]) -> ClockOffset:
    about = f"clock/{groups.placement.rank}/{number}"
    begin = now()
    groups.publish(f"{about}/asked", "")
    answered = json.loads(groups.read_published(f"{about}/time"))
    end = now()
    return ClockOffset((begin + end) / 2 - answered, (end - begin) / 2)
