"""Placement of peer copies and parity: which worker stores which other workers' state."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from paceline.peers.inventory import MOST_IN_GROUP, Row, rows_of_stripe
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Duties:
    """The peer copies and parity rows that one worker stores for others."""

    copies: tuple[int, ...] = ()
    """Ranks whose parts this worker stores as whole copies."""
    rows: tuple[Row, ...] = ()
    """Parity rows that this worker stores."""


def duties(rank: int, nodes: Sequence[str], *, parity_group: int, parity: int) -> Duties:
    """Return what a rank stores for others. `nodes[rank]` is the node that each rank runs on."""
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
    keepers = copy_holders(nodes)
    return Duties(copies=tuple(owner for owner, keeper in enumerate(keepers) if keeper == rank))


def copy_holders(nodes: Sequence[str]) -> list[int]:
    """Return the rank that stores each rank's peer copy, on another node if there is one."""
    order = _node_by_node(nodes)
    most = Counter(nodes).most_common(1)[0][1]
    keepers = [0] * len(nodes)
    for place, rank in enumerate(order):
        if 2 * most <= len(nodes):  # this shift always leaves the node; each rank stores one copy
            keepers[rank] = order[(place + most) % len(nodes)]
            continue
        others = [each for each in order if nodes[each] != nodes[rank]]
        keepers[rank] = others[place % len(others)] if others else order[(place + 1) % len(nodes)]
    return keepers


def groups(nodes: Sequence[str], parity_group: int, parity: int) -> list[tuple[int, ...]]:
    """Split the ranks into parity groups of nearly equal size, spread over the nodes.

    Each group has as few workers of any one node as possible. A group has at most `parity_group`
    members, unless groups of that size would be too small for their parity.
    """
    if parity >= parity_group:
        raise PacelineError(
            f"faults.parity is {parity}, but a parity group has only {parity_group} workers",
            fix="set faults.parity_group to more than faults.parity, or to 0 for whole copies",
        )
    if parity_group > MOST_IN_GROUP:
        raise PacelineError(
            f"faults.parity_group is {parity_group}, but the maximum is {MOST_IN_GROUP}",
            fix="use a smaller one, such as 16: larger groups save hardly any memory",
        )
    order = _node_by_node(nodes)
    count = max(1, min(ceil(len(order) / parity_group), len(order) // (parity + 1)))
    return [tuple(order[number::count]) for number in range(count)]


def _rows(members: int, parity: int) -> int:
    """Return the parity rows of a group: fewer than `parity` if the group is too small."""
    return min(parity, members - 1)


def _node_by_node(nodes: Sequence[str]) -> list[int]:
    """Return the ranks node by node, in the order of ranks where that is node by node already.

    Then each worker holds the copy of the same distance, and all inventories are alike.
    """
    order = {node: place for place, node in enumerate(dict.fromkeys(nodes))}
    return sorted(range(len(nodes)), key=lambda rank: (order[nodes[rank]], rank))
