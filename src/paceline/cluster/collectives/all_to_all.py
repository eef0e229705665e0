"""All-to-all: every member sends a part to each other one, `nbytes` with what it keeps."""

import numpy as np

from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """In pairs, one after the other (Thakur et al. 2005); links inside and between nodes work
    side by side, and each carries what goes to members behind it."""
    each = nbytes / group.members
    inside = (group.per_node - 1.0) * (group.inside_latency + each / group.inside_rate)
    between = (group.members - group.per_node) * (group.between_latency + each / group.between_rate)
    return group.alone(np.maximum(inside, between))
