"""The groups and message sizes that a probe measures."""

from dataclasses import dataclass

CALL_SECONDS = 0.2
"""Limit of a call's time above the smallest message's, so that a slow network takes no longer."""
REPEATED_SECONDS = 0.2
"""Total seconds of all calls of one size."""
FEWEST_REPEATS, MOST_REPEATS = 3, 15
FIRST_BYTES = 4096
GROWTH = 2.5
"""Factor from one size to the next."""
LEAST_GROWTH = 1.5
"""Smallest factor that is worth another size."""
MOST_ROUNDS = 4
"""Rounds of pairs: enough to tell a slow node from a slow partner."""


@dataclass(frozen=True)
class Grouping:
    """All workers in groups of `members`, `per_node` of them on each node.

    All groups communicate at the same time, as the groups of a layout do.
    """

    members: int
    per_node: int

    def group_of(self, rank: int, nodes: int, devices: int) -> list[int] | None:
        """Return the ranks of this rank's group; None if it is in no group."""
        node, local = divmod(rank, devices)
        if self.members == self.per_node:
            first = local - local % self.members
            if first + self.members > devices:
                return None
            return [node * devices + first + each for each in range(self.members)]
        spread = self.members // self.per_node
        first = node - node % spread
        if first + spread > nodes:
            return None
        there = [local] if self.per_node == 1 else list(range(devices))
        return [
            (first + each) * devices + place_in_node
            for each in range(spread)
            for place_in_node in there
        ]


def groupings(nodes: int, devices: int) -> list[Grouping]:
    """Return groups in a node, of one worker per node, and of whole nodes: 2, 4, 8, ... and all."""
    inside = [Grouping(members, members) for members in _doubled(devices)]
    between = [Grouping(spread, 1) for spread in _doubled(nodes)]
    if devices > 1:
        between += [Grouping(spread * devices, devices) for spread in _doubled(nodes)]
    return inside + between


def next_bytes(nbytes: int, seconds_above_first: float, most: int, members: int) -> int | None:
    """Return the next message size; None after the last."""
    growth = min(GROWTH, most / nbytes)
    if seconds_above_first > 0:
        growth = min(growth, CALL_SECONDS / seconds_above_first)
    if growth < LEAST_GROWTH:
        return None
    return in_parts(nbytes * growth, members)


def in_parts(nbytes: float, members: int) -> int:
    """Return about `nbytes`, divisible into equal parts of float32 numbers for all members."""
    part = 4 * members
    return max(1, round(nbytes / part)) * part


def repeats(expected_seconds: float) -> int:
    """Return the number of calls of one size."""
    wanted = int(REPEATED_SECONDS / expected_seconds)
    return min(max(wanted, FEWEST_REPEATS), MOST_REPEATS)


def partners(nodes: int) -> list[dict[int, int]]:
    """Return rounds of pairs of nodes, different in each round: a mapping from node to partner.

    A round-robin tournament: the first position is fixed, the others rotate by one. With an odd
    number of nodes, one rests in each round.
    """
    rounds: list[dict[int, int]] = []
    if nodes < 2:
        return rounds
    places = list(range(nodes)) + ([-1] if nodes % 2 else [])
    for _ in range(min(len(places) - 1, MOST_ROUNDS)):
        half = len(places) // 2
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        met = [(one, other) for one, other in pairs if -1 not in (one, other)]
        rounds.append(dict(met) | {other: one for one, other in met})
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def _doubled(most: int) -> list[int]:
    """Return 2, 4, 8, ... below `most`, and `most`."""
    if most < 2:
        return []
    return [1 << power for power in range(1, (most - 1).bit_length())] + [most]
