"""All-gather: every member ends with what all of them had, `nbytes` in the end."""

from paceline.cluster.collectives.group import Array, Group


def seconds(nbytes: Array, group: Group) -> Array:
    """Ring: (g-1) hops, (g-1)/g of the bytes through every link (Thakur et al. 2005)."""
    part = (group.members - 1.0) / group.members
    return group.alone(group.ring_latency + part * nbytes / group.ring_rate)
