"""The figures of one event in one crew, however it was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

KILLED = "worker killed"
"""The event in which all ways of measuring are compared."""


@dataclass(frozen=True)
class Measurement:
    """What an event costs a crew; messages and bytes are counted without heartbeats."""

    how: str
    """"processes", "event loops" or "simulated"."""
    members: int
    event: str
    lost: int
    seconds: float
    """From the event until all members have begun the next generation."""
    beyond_lease_seconds: float | None
    """The same without the lease, for losses that only a lease reveals."""
    messages: int
    total_bytes: int
    """Sent by all members."""
    busiest_bytes: int
    """Sent and received by one member."""
    cpu_seconds: float
    """Of all members' processes together."""
    left_out: int
    """Members that lived and could be reached, and are not in the next generation."""
    generations: int
    """Generations that began or were tried until then."""
    lease_seconds: float
    load: float
    """Load of the machine when it was measured."""

    @property
    def floor_seconds(self) -> float:
        """The time that the work takes on two cores if nothing ever waits."""
        return self.cpu_seconds / 2


def grouped(found: Sequence[Measurement]) -> dict[tuple[str, int, str], list[Measurement]]:
    """Return measurements by how, number of members and event."""
    groups: dict[tuple[str, int, str], list[Measurement]] = {}
    for each in found:
        groups.setdefault((each.how, each.members, each.event), []).append(each)
    return groups


def median_of(some: Sequence[Measurement]) -> Measurement:
    """Return the measurement with the median time."""
    ordered = sorted(some, key=lambda each: each.seconds)
    return ordered[len(ordered) // 2]
