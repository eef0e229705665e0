"""The cost of each collective in the alpha-beta model: latency plus bytes over bandwidth.

All values are arrays over layouts, so that one call computes a million layouts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """The devices of a process group and their bandwidth; numbers, or arrays over layouts."""

    members: Array
    per_node: Array
    """Members on one node."""
    inside_latency: Array
    """Seconds for one hop between two devices of a node."""
    inside_rate: Array
    """Bytes per second of one device towards the others of its node."""
    between_latency: Array
    between_rate: Array
    """Bytes per second of one device's share of its node's network interfaces."""
    call: Array
    """Seconds that any call takes before bytes move."""

    @cached_property
    def nodes(self) -> Array:
        """Number of nodes of the group."""
        return np.ceil(self.members / self.per_node)

    @cached_property
    def ring_rate(self) -> Array:
        """Bytes per second around a ring through all members.

        Between nodes, a group uses the interfaces of all its members on one node: sixteen
        tensor-parallel slices over two nodes of eight use eight interfaces, the replicas of one of
        eight slices use one. This is the most important rule between nodes.
        """
        inside = np.where(self.per_node > 1, self.inside_rate, np.inf)
        between = np.where(self.nodes > 1, self.between_rate * self.per_node, np.inf)
        return np.minimum(inside, between)

    @cached_property
    def ring_latency(self) -> Array:
        """Seconds once around the ring, with a slow hop wherever it leaves a node."""
        between = np.where(self.nodes > 1, self.nodes, 0.0)
        inside = np.maximum(self.members - 1.0 - between, 0.0)
        return inside * self.inside_latency + between * self.between_latency

    def with_call(self, seconds: Array) -> Array:
        """Return `seconds` plus the cost of a call; 0 for a single member."""
        return np.where(self.members > 1, seconds + self.call, 0.0)


def all_gather(nbytes: Array, group: Group) -> Array:
    """Return the seconds until every member has all parts, `nbytes` together.

    Ring: (g-1) hops, (g-1)/g of the bytes through every link (Thakur et al. 2005).
    """
    part = (group.members - 1.0) / group.members
    return group.with_call(group.ring_latency + part * nbytes / group.ring_rate)


def reduce_scatter(nbytes: Array, group: Group) -> Array:
    """Return the seconds until every member has its part of the sum of `nbytes` each.

    A reversed all-gather: the same hops and bytes (Thakur et al. 2005).
    """
    return all_gather(nbytes, group)


def all_reduce(nbytes: Array, group: Group) -> Array:
    """Return the seconds until every member has the sum of `nbytes` each.

    The fastest of ring, tree and hierarchical, as the libraries choose by size.
    """
    fastest = np.minimum(_ring(nbytes, group), _tree(nbytes, group))
    return group.with_call(np.minimum(fastest, _hierarchical(nbytes, group)))


def all_to_all(nbytes: Array, group: Group) -> Array:
    """Return the seconds until every member has sent a part to each other member.

    A member's parts have `nbytes` in total, including its own. Pairwise exchange (Thakur et al.
    2005). Links inside and between nodes work at the same time, and each carries the parts for the
    members behind it.
    """
    each = nbytes / group.members
    inside = (group.per_node - 1.0) * (group.inside_latency + each / group.inside_rate)
    between = (group.members - group.per_node) * (group.between_latency + each / group.between_rate)
    return group.with_call(np.maximum(inside, between))


def send(nbytes: Array, group: Group) -> Array:
    """Return the seconds of one hop; between nodes where the group has several.

    Between nodes, the sender has its share of the node's interfaces.
    """
    inside = group.inside_latency + nbytes / group.inside_rate
    between = group.between_latency + nbytes / group.between_rate
    return group.with_call(np.where(group.nodes > 1, between, inside))


def _ring(nbytes: Array, group: Group) -> Array:
    """Return the seconds of 2(g-1) hops and 2(g-1)/g of the bytes (Thakur et al. 2005)."""
    part = (group.members - 1.0) / group.members
    return 2.0 * (group.ring_latency + part * nbytes / group.ring_rate)


def _tree(nbytes: Array, group: Group) -> Array:
    """Chains inside the nodes, a tree between them: 2 log2(nodes) hops, 2n bytes (NCCL)."""
    hops = np.ceil(np.log2(group.nodes))
    inside = (group.per_node - 1.0) * group.inside_latency
    return 2.0 * (inside + hops * group.between_latency + nbytes / group.ring_rate)


def _hierarchical(nbytes: Array, group: Group) -> Array:
    """Reduce-scatter inside nodes, rings between members of one local rank, all-gather inside."""
    inside = (group.per_node - 1.0) * (
        group.inside_latency + nbytes / group.per_node / group.inside_rate
    )
    between = (group.nodes - 1.0) * (
        group.between_latency + nbytes / group.members / group.between_rate
    )
    return 2.0 * (inside + between)
