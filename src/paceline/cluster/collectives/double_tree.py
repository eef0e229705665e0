"""All-reduce by a double binary tree between nodes and chains inside them, in pieces.

With one member in each node and in one piece, it is what `paceline.sync.studied` does. `all_reduce`
has the same tree as libraries run it, with pieces that cost nothing.
"""

import numpy as np

from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """Up and down h hops each, log2 of the nodes of them long; as many bytes as in a ring.

    In k pieces, one way takes h + k - 1 rounds, each of a latency a and of n/k bytes at rate b:
    ha + n/b + (h-1)n/kb + (k-1)a. The best k makes the last two terms equal but for one latency
    (Sanders, Speck and Träff 2009, who let a member talk to one other at a time and so have two
    rounds for each hop).
    """
    long_hops = np.ceil(np.log2(group.nodes))
    short_hops = group.per_node - 1.0
    latency = short_hops * group.inside_latency + long_hops * group.between_latency
    slowest = np.where(group.nodes > 1, group.between_latency, group.inside_latency)
    # Of two members each is the root of one tree and sends half of the bytes; in larger trees,
    # those who send two halves are the ones that all wait for.
    passing = np.where(group.members == 2, 0.5, 1.0) * nbytes / group.ring_rate
    in_one_piece = np.maximum(short_hops + long_hops - 1.0, 0.0) * passing
    filling = np.where(
        in_one_piece > slowest, 2.0 * np.sqrt(slowest * in_one_piece) - slowest, in_one_piece
    )
    return group.alone(2.0 * (latency + passing + filling))
