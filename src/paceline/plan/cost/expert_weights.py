"""Weights of experts that expert parallelism divides instead of tensor parallelism, and their
traffic."""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, Array
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.device_groups import group_of
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Layouts
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import LayerCost


@dataclass(frozen=True)
class ExpertWeights:
    """Parameters of the experts on a worker, by layout; 0 where slices divide them."""

    sliced: Array
    """What a slice would hold."""
    held: Array
    """What a worker holds instead."""
    shards: Array
    """Workers that shard it."""
    replicas: Array
    """Workers with the same experts, the shards included."""

    def more(self, sliced_over: Array | float, held_over: Array | float) -> Array:
        """Return the parameters that a worker holds beyond those of slices, if these are divided
        over some workers and those of experts over others."""
        return np.asarray(self.held / held_over - self.sliced / sliced_over)


def expert_weights(block: LayerCost, layouts: Layouts, blocks: Array) -> ExpertWeights | None:
    """Return the experts of `blocks` blocks; None if slices divide them in all layouts."""
    if not (layouts.expert.ndim and block.parameters_experts):
        return None
    divided = layouts.expert > 1
    every = np.where(divided, blocks * block.parameters_experts, 0.0)
    replicas = np.maximum(layouts.stage_workers * layouts.tensor / layouts.expert, 1.0)
    sharding = np.maximum(layouts.shards * layouts.tensor / layouts.expert, 1.0)
    return ExpertWeights(
        sliced=every / layouts.tensor,
        held=every / layouts.expert,
        shards=np.where(layouts.shards > 1, sharding, 1.0),
        replicas=replicas,
    )


@dataclass(frozen=True)
class ExpertTraffic:
    """Seconds of the collectives between workers with the same experts."""

    parameters: Array
    """Parameters of a worker's experts."""
    gather: Array
    """Weights of one pass, between shards."""
    scatter: Array
    summed: Array
    """Gradients of a step, between replicas."""
    back: Array
    """Updated weights, if replicas divide the optimizer state."""


def expert_traffic(
    block: LayerCost,
    layouts: Layouts,
    cluster: Cluster,
    numbers: Coefficients,
    engine: Engine,
    gradient_bytes: Array,
) -> ExpertTraffic | None:
    """Return the traffic of experts; workers with the same ones are `layouts.expert` apart."""
    experts = expert_weights(block, layouts, layouts.blocks(block.count))
    if experts is None:
        return None
    rate, stride = numbers.bucket_rate, layouts.expert
    between_shards = group_of(cluster, numbers, experts.shards, stride)
    copies = experts.replicas / experts.shards
    between_replicas = group_of(cluster, numbers, copies, stride * experts.shards)
    weights, gradients = engine.gathered_bytes * experts.held, gradient_bytes * experts.held
    part = gradients / experts.shards
    divided = layouts.optimizer_shards > 0
    summed = np.where(
        divided,
        COLLECTIVES["reduce-scatter"](part, between_replicas),
        COLLECTIVES["all-reduce"](part, between_replicas),
    )
    back = COLLECTIVES["all-gather"](weights / experts.shards, between_replicas)
    has = layouts.expert > 1
    return ExpertTraffic(
        parameters=experts.held,
        gather=np.where(has, COLLECTIVES["all-gather"](weights, between_shards), 0.0) / rate,
        scatter=np.where(has, COLLECTIVES["reduce-scatter"](gradients, between_shards), 0.0) / rate,
        summed=np.where(has, summed, 0.0) / rate,
        back=np.where(has & divided, back, 0.0) / rate,
    )
