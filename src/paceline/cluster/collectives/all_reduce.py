"""All-reduce: every member ends with the sum of what all of them had, `nbytes` each."""

import numpy as np

from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """The fastest of ring, tree and hierarchical, as the libraries choose by size."""
    fastest = np.minimum(_ring(nbytes, group), _tree(nbytes, group))
    return group.alone(np.minimum(fastest, _hierarchical(nbytes, group)))


def _ring(nbytes: Array, group: Group) -> Array:
    """2(g-1) hops and 2(g-1)/g of the bytes (Thakur et al. 2005)."""
    part = (group.members - 1.0) / group.members
    return 2.0 * (group.ring_latency + part * nbytes / group.ring_rate)


def _tree(nbytes: Array, group: Group) -> Array:
    """A chain inside the nodes, a tree between them: 2 log2 of the nodes hops, 2n bytes (NCCL)."""
    hops = np.ceil(np.log2(group.nodes))
    inside = (group.per_node - 1.0) * group.inside_latency
    return 2.0 * (inside + hops * group.between_latency + nbytes / group.ring_rate)


def _hierarchical(nbytes: Array, group: Group) -> Array:
    """Reduce-scatter inside nodes, rings between those with the same place, all-gather inside."""
    inside = (group.per_node - 1.0) * (
        group.inside_latency + nbytes / group.per_node / group.inside_rate
    )
    between = (group.nodes - 1.0) * (
        group.between_latency + nbytes / group.members / group.between_rate
    )
    return 2.0 * (inside + between)
