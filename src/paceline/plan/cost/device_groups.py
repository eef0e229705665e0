"""Process groups of a layout, placed on a cluster."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from paceline.cluster.collectives import MODELS, Array, Group
from paceline.cluster.collectives.corrections import Measured, ProbedGroup, measured
from paceline.plan.cost.coefficients import Coefficients
from paceline.specs.measurements.cluster import Cluster, CollectiveCost, Link, Tier


def group_of(
    cluster: Cluster, numbers: Coefficients, members: Array, stride: Array | float
) -> Group:
    """Return a group of `members` that are `stride` devices apart, while all such groups
    communicate."""
    per_node = np.clip(np.floor(cluster.devices_per_node / stride), 1.0, members)
    network = cluster.network_bytes_per_second * numbers.between_rate
    if cluster.tiers:
        nodes = members * stride / cluster.devices_per_node
        network = network * _share(cluster.tiers, nodes, cluster.nodes)
    group = Group(
        members=members,
        per_node=per_node,
        inside_latency=np.asarray(cluster.inside.latency_seconds),
        inside_rate=cluster.inside.bytes_per_second * numbers.inside_rate,
        between_latency=np.asarray(cluster.between.latency_seconds),
        between_rate=network,
        call=numbers.call_seconds,
    )
    if not cluster.collectives:
        return group
    found = _measured(
        cluster.collectives,
        cluster.inside,
        cluster.between,
        cluster.network_bytes_per_second,
        cluster.tiers,
    )
    return ProbedGroup(**vars(group), measured=found)


def _share(tiers: tuple[Tier, ...], nodes: Array, of: Array | float) -> Array:
    """Return the fraction of the network's rate that groups over `nodes` of `of` nodes have.

    Ranks are placed in order, so groups stay below the switches of a tier if one switch has all
    nodes, or a whole number of groups below it. Where one crosses, its part of the links upwards is
    all that it has, since all groups communicate at the same time.
    """
    share = np.ones(np.shape(nodes))
    for tier in tiers:
        filled = np.remainder(tier.nodes, np.maximum(nodes, 1.0)) == 0
        within = (nodes <= tier.nodes) & (filled | (np.asarray(of) <= tier.nodes))
        share = share / np.where(within, 1.0, tier.oversubscription)
    return share


@lru_cache
def _measured(
    costs: tuple[CollectiveCost, ...],
    inside: Link,
    between: Link,
    network: float,
    tiers: tuple[Tier, ...],
) -> Mapping[str, Measured]:
    """Return the corrections of the collective model from measured costs, relative to the priors.

    With prior coefficients, a prediction equals the measurement; fitted coefficients scale it by
    their change from the prior.
    """
    prior = Coefficients.prior()

    def seen(members: Array, per_node: Array) -> Group:
        nodes = members / per_node
        return Group(
            members=members,
            per_node=per_node,
            inside_latency=np.asarray(inside.latency_seconds),
            inside_rate=inside.bytes_per_second * prior.inside_rate,
            between_latency=np.asarray(between.latency_seconds),
            between_rate=network * prior.between_rate * _share(tiers, nodes, nodes),
            call=prior.call_seconds,
        )

    return measured(costs, MODELS, seen)
