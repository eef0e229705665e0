"""A send from one member to another; between nodes where the group is spread over several."""

import numpy as np

from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """One hop, over the sender's share of the network where it leaves the node."""
    inside = group.inside_latency + nbytes / group.inside_rate
    between = group.between_latency + nbytes / group.between_rate
    return group.alone(np.where(group.nodes > 1, between, inside))
