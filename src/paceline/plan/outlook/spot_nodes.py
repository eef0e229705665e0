"""A training on spot nodes, which their owner may take back at any time."""

from paceline.plan.goodput_model import failures_per_device_hour
from paceline.plan.search.best_layout import Best
from paceline.plan.training_cost import TooManyFailures, training_cost
from paceline.specs import Cluster, Prices, TrainingCost


def spot_cost(
    best: Best, cluster: Cluster, steps: int, prices: Prices, per_node_hour: float
) -> TrainingCost:
    """Return the cost on spot nodes; nodes that are away are counted as paid.

    `per_node_hour`: how often a node is taken back. These interruptions add to failures.
    """
    failures, _ = failures_per_device_hour(cluster)
    there = cluster.model_copy(
        update={
            "failures_per_device_hour": failures + per_node_hour / cluster.devices_per_node,
            "prices": prices.model_copy(update={"per_node_hour": prices.spot_per_node_hour}),
        }
    )
    return training_cost(best, there, steps, replacement_seconds=prices.replacement_seconds)


def offered_spot_cost(best: Best, cluster: Cluster, steps: int) -> TrainingCost | None:
    """Return the cost on the spot nodes that the cluster's prices offer; None if they offer none,
    or take them back so often that the training does not get on."""
    prices = cluster.prices
    if prices is None or prices.spot_per_node_hour is None:
        return None
    try:
        return spot_cost(best, cluster, steps, prices, prices.interruptions_per_node_hour)
    except TooManyFailures:
        return None
