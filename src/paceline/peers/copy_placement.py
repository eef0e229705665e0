"""Which worker keeps what of which others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from paceline.peers.inventory import MOST_IN_GROUP, Row, rows_of_stripe
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Duties:
    """What one worker keeps for others."""

    copies: tuple[int, ...] = ()
    """The ranks whose parts it keeps."""
    rows: tuple[Row, ...] = ()
    """The parity that it keeps."""


def duties(rank: int, nodes: Sequence[str], *, parity_group: int, parity: int) -> Duties:
    """What a rank keeps, where `nodes` says on which node each rank runs."""
    if len(nodes) == 1:
        return Duties()
    if parity_group > 1:
        group = next(each for each in groups(nodes, parity_group, parity) if rank in each)
        rows = (
            row
            for stripe in range(len(group))
            for row in rows_of_stripe(group, _rows(len(group), parity), stripe)
        )
        return Duties(rows=tuple(row for row in rows if row.keeper == rank))
    keepers = keepers_of_copies(nodes)
    return Duties(copies=tuple(owner for owner, keeper in enumerate(keepers) if keeper == rank))


def keepers_of_copies(nodes: Sequence[str]) -> list[int]:
    """Who keeps each rank's copy: somebody on another node, if there is another node."""
    order = _node_by_node(nodes)
    most = Counter(nodes).most_common(1)[0][1]
    keepers = [0] * len(nodes)
    for place, rank in enumerate(order):
        if 2 * most <= len(nodes):  # far enough to leave any node, and everybody keeps one
            keepers[rank] = order[(place + most) % len(nodes)]
            continue
        others = [each for each in order if nodes[each] != nodes[rank]]
        keepers[rank] = others[place % len(others)] if others else order[(place + 1) % len(nodes)]
    return keepers


def groups(nodes: Sequence[str], parity_group: int, parity: int) -> list[tuple[int, ...]]:
    """Groups of nearly equal size, of which each has as few workers of any node as can be: no
    larger than asked for, unless some would be too small for their parity."""
    if parity >= parity_group:
        raise PacelineError(
            f"faults.parity is {parity} in groups of {parity_group}, of which nobody would be left",
            fix="set faults.parity_group to more than faults.parity, or to 0 for whole copies",
        )
    if parity_group > MOST_IN_GROUP:
        raise PacelineError(
            f"faults.parity_group is {parity_group}, but parity is over at most {MOST_IN_GROUP}",
            fix="set faults.parity_group to 16, say: larger ones save hardly any memory",
        )
    order = _node_by_node(nodes)
    count = max(1, min(ceil(len(order) / parity_group), len(order) // (parity + 1)))
    return [tuple(order[number::count]) for number in range(count)]


def _rows(members: int, parity: int) -> int:
    """Rows of parity in a group: fewer than asked for where too few workers are left."""
    return min(parity, members - 1)


def _node_by_node(nodes: Sequence[str]) -> list[int]:
    return sorted(range(len(nodes)), key=lambda rank: (nodes[rank], rank))
