"""Which devices communicate: groups of a layout, placed on a cluster."""

import numpy as np

from paceline.cluster.collectives import Array, Group
from paceline.plan.numbers import Numbers
from paceline.specs.cluster import Cluster


def group_of(cluster: Cluster, numbers: Numbers, members: Array, stride: Array | float) -> Group:
    """`members` that are `stride` devices apart, while all such groups are at work.

    Neighbours have the interfaces of all members in a node. Members that stand apart, with other
    groups between them, have all of them without crowding, and only one where it is large.
    """
    per_node = np.clip(np.floor(cluster.devices_per_node / stride), 1.0, members)
    apart = (1.0 + (per_node - 1.0) / (1.0 + numbers.crowding)) / per_node
    share = np.where(np.asarray(stride) > 1, apart, 1.0)
    between = cluster.network_bytes_per_second * numbers.between_rate
    return Group(
        members=members,
        per_node=per_node,
        inside_latency=np.asarray(cluster.inside.latency_seconds),
        inside_rate=cluster.inside.bytes_per_second * numbers.inside_rate,
        between_latency=np.asarray(cluster.between.latency_seconds),
        between_rate=between * share,
        call=numbers.call_seconds,
    )
