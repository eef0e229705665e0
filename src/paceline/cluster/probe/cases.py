"""Who communicates with whom while a cluster is probed, and how many bytes."""

from dataclasses import dataclass

CALL_SECONDS = 0.2
"""The longest call, above the shortest: a slow network is probed as quickly as a fast one."""
REPEATED_SECONDS = 0.2
"""For all calls of one size."""
FEWEST_REPEATS, MOST_REPEATS = 3, 15
FIRST_BYTES = 4096
GROWTH = 2.5
"""From one size to the next."""
LEAST_GROWTH = 1.5
"""Below which another size would say nothing new."""
MOST_ROUNDS = 4
"""In which every node meets another one: enough to tell a slow node from a slow partner."""


@dataclass(frozen=True)
class Grouping:
    """All workers in groups of `members`, of which `per_node` share a node.

    All groups work side by side, as those of a layout do.
    """

    members: int
    per_node: int

    def group_of(self, rank: int, nodes: int, devices: int) -> list[int] | None:
        """The workers in the group of this one; None where it is left over."""
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
    """Groups in a node, of one worker in each node, and of whole nodes: 2, 4, 8, ... and all."""
    inside = [Grouping(members, members) for members in _doubled(devices)]
    between = [Grouping(spread, 1) for spread in _doubled(nodes)]
    if devices > 1:
        between += [Grouping(spread * devices, devices) for spread in _doubled(nodes)]
    return inside + between


def next_bytes(nbytes: int, seconds_above_first: float, most: int, members: int) -> int | None:
    """The next message after one that took so much longer than the first one; None when that was
    the last.
    """
    growth = min(GROWTH, most / nbytes)
    if seconds_above_first > 0:
        growth = min(growth, CALL_SECONDS / seconds_above_first)
    if growth < LEAST_GROWTH:
        return None
    return in_parts(nbytes * growth, members)


def in_parts(nbytes: float, members: int) -> int:
    """About as many bytes, in equal parts of whole float32 numbers for all members."""
    part = 4 * members
    return max(1, round(nbytes / part)) * part


def repeats(expected_seconds: float) -> int:
    """Calls of one size."""
    wanted = int(REPEATED_SECONDS / expected_seconds)
    return min(max(wanted, FEWEST_REPEATS), MOST_REPEATS)


def partners(nodes: int) -> list[dict[int, int]]:
    """Rounds in which nodes meet in pairs, always other ones: each node's partner, by number.

    A round-robin tournament: one place stays, the others move on by one. Of an odd number of
    nodes one rests in each round.
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
    """2, 4, 8, ... below `most`, and `most`."""
    if most < 2:
        return []
    return [1 << power for power in range(1, (most - 1).bit_length())] + [most]
