"""Who takes part in a collective, and what bandwidth they have together."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Devices that communicate; arrays over layouts, or single numbers."""

    members: Array
    per_node: Array
    """Members that sit in one node."""
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
        """Over which the group is spread."""
        return np.ceil(self.members / self.per_node)

    @cached_property
    def ring_rate(self) -> Array:
        """Bytes per second around a ring through all members.

        Between nodes a group has the interfaces of all its members in one node: sixteen slices of a
        layer over two nodes of eight use eight interfaces, replicas of a layer sliced in eight use
        one. No other rule matters as much between nodes.
        """
        inside = np.where(self.per_node > 1, self.inside_rate, np.inf)
        between = np.where(self.nodes > 1, self.between_rate * self.per_node, np.inf)
        return np.minimum(inside, between)

    @cached_property
    def ring_latency(self) -> Array:
        """Seconds for one way round, with a slow hop wherever it leaves a node."""
        between = np.where(self.nodes > 1, self.nodes, 0.0)
        inside = np.maximum(self.members - 1.0 - between, 0.0)
        return inside * self.inside_latency + between * self.between_latency

    def alone(self, seconds: Array) -> Array:
        """`seconds` and the cost of a call, or nothing where there is only one member."""
        return np.where(self.members > 1, seconds + self.call, 0.0)
