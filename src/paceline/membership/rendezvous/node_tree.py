"""The tree of nodes at the start of a run: the shape of the heartbeats' tree.

A node's contact is its first worker. Each contact speaks with the contact of the node above it, and
with at most `FAN_OUT` below it.
"""

from dataclasses import dataclass

from paceline.membership.control import FAN_OUT
from paceline.specs import Placement


@dataclass(frozen=True)
class NodeSeat:
    """A node's place in the tree. Nodes are numbered in the order of their workers' ranks."""

    number: int
    nodes: int
    local_ranks: tuple[int, ...]
    """Ranks of the workers on this node; the first is the contact."""
    is_flat: bool
    """Whether all nodes are directly below the first, because only its address is known."""
    workers_per_node: int

    @classmethod
    def of(cls, placement: Placement, *, is_flat: bool) -> "NodeSeat":
        """Return the seat of a worker's node."""
        each = placement.local_workers
        number = placement.rank // each
        ranks = range(number * each, min((number + 1) * each, placement.workers))
        return cls(number, -(-placement.workers // each), tuple(ranks), is_flat, each)

    @property
    def parent(self) -> int | None:
        """Number of the node above; None for the first node."""
        if self.number == 0:
            return None
        return 0 if self.is_flat else (self.number - 1) // FAN_OUT

    @property
    def children(self) -> range:
        """Numbers of the nodes below."""
        if self.is_flat:
            return range(1, self.nodes) if self.number == 0 else range(0)
        first = FAN_OUT * self.number + 1
        return range(min(first, self.nodes), min(first + FAN_OUT, self.nodes))

    @property
    def child_ranks(self) -> list[int]:
        """Ranks of the contacts of the nodes below."""
        return [child * self.workers_per_node for child in self.children]
