"""All-reduce as three calls, one after the other: inside nodes, across them, inside nodes.

What `paceline.sync.hierarchical` does; `all_reduce` has what libraries do inside one call.
"""

from dataclasses import replace

import numpy as np

from paceline.cluster.collectives import COLLECTIVES
from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """Reduce-scatter inside nodes of m members, all-reduce of n/m bytes across g/m nodes,
    all-gather inside (Cho et al. 2019, BlueConnect). As rings (Thakur et al. 2005), these are
    2(m-1) short and 2(g/m-1) long hops, 2(m-1)/m·n bytes over a member's link inside and
    2(g/m-1)/g·n over its share of the network; across nodes, a tree counts where it is faster.

    The three wait for each other: links inside and between nodes are never busy at once.
    """
    inside = replace(group, members=group.per_node)
    across = replace(group, members=group.nodes, per_node=np.ones_like(group.nodes))
    return (
        COLLECTIVES["reduce-scatter"](nbytes, inside)
        + COLLECTIVES["all-reduce"](nbytes / group.per_node, across)
        + COLLECTIVES["all-gather"](nbytes, inside)
    )
