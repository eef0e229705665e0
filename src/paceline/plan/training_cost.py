"""Cost of a whole training: time with failures and checkpoints, energy, money, time slots."""

import math
from dataclasses import replace

from paceline.plan.cost.energy import step_joules
from paceline.plan.goodput_model import (
    Recovery,
    failures_per_device_hour,
    goodput,
    time_slots,
)
from paceline.plan.search.best_layout import Best
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.prices import Prices
from paceline.specs.plans.estimate import Amount, TrainingCost
from paceline.specs.plans.fault_tolerance import Faults
from paceline.specs.plans.layout import Layout
from paceline.specs.units import count, duration

HOUR = 3600.0
KILOWATT_HOUR = 3.6e6
SAVED_BYTES_PER_SECOND = 1e9
"""Write rate of one node to a parallel file system: assumed."""
START_SECONDS = 120.0
"""From the start of a job, or from a failure, until training continues: assumed."""
REGROUP_SECONDS = 30.0
"""Time to regroup: assumed, for the largest clusters; four processes on one machine take
milliseconds."""
UNCOVERED = 0.1
"""Fraction of failures after which no peer has the lost state: assumed; 8 % of the stops of
Llama 3 were switches and cables, which many nodes share."""
COPY_STEPS = 10
"""Steps between peer copies, if the plan does not say."""


FEWEST_USEFUL = 1e-6
"""Goodput below which a training does not end."""


class TooManyFailures(PacelineError):
    """Nodes fail so often that the training does not get on."""


def training_cost(
    best: Best,
    cluster: Cluster,
    steps: int,
    slot_seconds: float | None = None,
    faults: Faults = Faults(),  # noqa: B008 -- frozen
    replacement_seconds: float = 0.0,
) -> TrainingCost:
    """Return the cost of `steps` steps on the nodes of a cluster.

    `replacement_seconds`: from the loss of a node until another one is there.
    """
    step = best.estimate.step_seconds
    parts = best.estimate.bytes
    kept = parts["weights"] + parts["optimizer"] + parts["sync_state"]
    saving = kept * cluster.devices_per_node
    checkpoint_seconds = max(saving / SAVED_BYTES_PER_SECOND, 1e-3)
    recovery = recovery_of(best.estimate.layout, step.value, checkpoint_seconds, cluster, faults)
    if replacement_seconds:
        model = best.estimate.layout.workers / best.estimate.layout.replicas
        recovery = replace(
            recovery,
            return_seconds=replacement_seconds,
            nodes_per_replica=math.ceil(model / cluster.devices_per_node),
        )
    good = goodput(cluster, recovery)
    if good.fraction < FEWEST_USEFUL:
        raise TooManyFailures(
            f"on {count(cluster.nodes, 'node')} with {failures_per_device_hour(cluster)[0]:.3g}"
            f" failures per device and hour, steps of {duration(step.value)} and checkpoints of"
            f" {duration(checkpoint_seconds)}, the training does not get on",
            fix="use fewer nodes, or nodes that fail less often",
        )
    hours = steps * step.value / good.fraction / HOUR
    energy = step_joules(best.estimate, cluster)
    kilowatt_hours = None if energy is None else steps * energy / good.fraction / KILOWATT_HOUR
    slots = None
    if slot_seconds is not None:
        slots = time_slots(
            steps * step.value, slot_seconds, START_SECONDS, checkpoint_seconds, good.fraction
        )
    return TrainingCost(
        steps=steps,
        seconds=Amount(
            value=steps * step.value / good.fraction,
            low=steps * step.low / good.fraction,
            high=steps * step.high / good.fraction,
            origin=step.origin,
        ),
        goodput=good.fraction,
        save_every_seconds=good.interval_seconds if good.fraction < 1 else None,
        device_hours=hours * best.estimate.layout.workers,
        kilowatt_hours=kilowatt_hours,
        money=price(cluster.prices, hours * cluster.nodes, kilowatt_hours),
        currency=cluster.prices.currency if cluster.prices else "",
        slots=slots,
    )


def price(prices: Prices | None, node_hours: float, kilowatt_hours: float | None) -> float | None:
    """Return what hours of nodes and their electricity cost; None if a part of it is unknown."""
    if prices is None or (prices.per_kwh and kilowatt_hours is None):
        return None
    return prices.of_hours(node_hours) + prices.of_electricity(kilowatt_hours or 0.0)


def recovery_of(
    layout: Layout, step_seconds: float, checkpoint_seconds: float, cluster: Cluster, faults: Faults
) -> Recovery:
    """Return how a run of this layout recovers from a node failure."""
    from_disk = Recovery(
        detection_seconds=faults.lease_seconds,
        restart_seconds=START_SECONDS,
        checkpoint_seconds=checkpoint_seconds,
    )
    # Replicas are copies of each other after every step.
    replicated = layout.workers == layout.replicas
    copied = COPY_STEPS if faults.copy_every is None else faults.copy_every
    every = 1 if replicated else copied
    if not faults.regroup or cluster.nodes == 1 or every == 0:
        return from_disk
    return replace(
        from_disk,
        uncovered=UNCOVERED,
        regroup_seconds=REGROUP_SECONDS,
        copy_interval_seconds=every * step_seconds,
    )
