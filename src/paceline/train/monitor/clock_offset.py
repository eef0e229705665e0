"""By how much a node's clock is ahead of that of worker 0's node.

A worker asks worker 0 for the time, and takes the answer of the quickest of some exchanges to have
been given in the middle of it (F. Cristian, "Probabilistic clock synchronization", 1989). However
unequal the ways there and back are, that is wrong by at most half of the exchange's time.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from paceline.comm.groups import Groups

EXCHANGES = 10


@dataclass(frozen=True)
class ClockOffset:
    """What has to be taken from a clock's time to have that of worker 0's node."""

    seconds: float = 0.0
    uncertainty_seconds: float = 0.0
    """It is right to within this."""


def clock_offset(
    groups: Groups, ranks: Collection[int], now: Callable[[], float] = time.time
) -> ClockOffset:
    """This worker's, where some workers call it together, worker 0 among them.

    One worker of each node asks, and tells the others of the node. Worker 0 answers one after the
    other, so that an answer waits for nothing else.
    """
    placement = groups.placement
    nodes = {rank // placement.local_workers: rank for rank in sorted(ranks, reverse=True)}
    asking = [rank for rank in sorted(nodes.values()) if rank]
    if placement.rank == 0:
        for rank in asking:
            for number in range(EXCHANGES):
                groups.heard(f"clock/{rank}/{number}/asked")
                groups.say(f"clock/{rank}/{number}/time", json.dumps(now()))
        return ClockOffset()
    speaker = nodes[placement.rank // placement.local_workers]
    if speaker == 0:
        return ClockOffset()
    if placement.rank != speaker:
        return ClockOffset(*json.loads(groups.heard(f"clock/{speaker}/offset")))
    exchanges = [_asked(groups, number, now) for number in range(EXCHANGES)]
    best = min(exchanges, key=lambda each: each.uncertainty_seconds)
    groups.say(f"clock/{speaker}/offset", json.dumps([best.seconds, best.uncertainty_seconds]))
    return best


def _asked(groups: Groups, number: int, now: Callable[[], float]) -> ClockOffset:
    about = f"clock/{groups.placement.rank}/{number}"
    begin = now()
    groups.say(f"{about}/asked", "")
    answered = json.loads(groups.heard(f"{about}/time"))
    end = now()
    return ClockOffset((begin + end) / 2 - answered, (end - begin) / 2)
