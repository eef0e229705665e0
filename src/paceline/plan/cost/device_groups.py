"""Process groups of a layout, placed on a cluster."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from paceline.cluster.collectives import MODELS, Array, Group
from paceline.cluster.collectives.corrections import Measured, ProbedGroup, measured
from paceline.plan.cost.coefficients import Coefficients
from paceline.specs.measurements.cluster import Cluster, CollectiveCost, Link


def group_of(
    cluster: Cluster, numbers: Coefficients, members: Array, stride: Array | float
) -> Group:
    """Return a group of `members` that are `stride` devices apart, while all such groups
    communicate."""
    per_node = np.clip(np.floor(cluster.devices_per_node / stride), 1.0, members)
    group = Group(
        members=members,
        per_node=per_node,
        inside_latency=np.asarray(cluster.inside.latency_seconds),
        inside_rate=cluster.inside.bytes_per_second * numbers.inside_rate,
        between_latency=np.asarray(cluster.between.latency_seconds),
        between_rate=cluster.network_bytes_per_second * numbers.between_rate,
        call=numbers.call_seconds,
    )
    if not cluster.collectives:
        return group
    found = _measured(
        cluster.collectives, cluster.inside, cluster.between, cluster.network_bytes_per_second
    )
    return ProbedGroup(**vars(group), measured=found)


@lru_cache
def _measured(
    costs: tuple[CollectiveCost, ...], inside: Link, between: Link, network: float
) -> Mapping[str, Measured]:
    """Return the corrections of the collective model from measured costs, relative to the priors.

    With prior coefficients, a prediction equals the measurement; fitted coefficients scale it by
    their change from the prior.
    """
    prior = Coefficients.prior()

    def seen(members: Array, per_node: Array) -> Group:
        return Group(
            members=members,
            per_node=per_node,
            inside_latency=np.asarray(inside.latency_seconds),
            inside_rate=inside.bytes_per_second * prior.inside_rate,
            between_latency=np.asarray(between.latency_seconds),
            between_rate=network * prior.between_rate,
            call=prior.call_seconds,
        )

    return measured(costs, MODELS, seen)
