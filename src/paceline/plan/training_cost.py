"""Cost of a whole training: time with failures and checkpoints, energy, money, time slots."""

from dataclasses import replace

from paceline.plan.cost.energy import money, step_joules
from paceline.plan.goodput_model import Recovery, goodput, time_slots
from paceline.plan.search.best_layout import Best
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Amount, TrainingCost
from paceline.specs.plans.fault_tolerance import Faults
from paceline.specs.plans.layout import Layout

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


def training_cost(
    best: Best,
    cluster: Cluster,
    steps: int,
    slot_seconds: float | None = None,
    faults: Faults = Faults(),  # noqa: B008 -- frozen
) -> TrainingCost:
    """Return the cost of `steps` steps on the nodes of a cluster."""
    step = best.estimate.step_seconds
    parts = best.estimate.bytes
    kept = parts["weights"] + parts["optimizer"] + parts["sync_state"]
    saving = kept * cluster.devices_per_node
    checkpoint_seconds = max(saving / SAVED_BYTES_PER_SECOND, 1e-3)
    recovery = recovery_of(best.estimate.layout, step.value, checkpoint_seconds, cluster, faults)
    good = goodput(cluster, recovery)
    hours = steps * step.value / good.fraction / HOUR
    price = money(cluster, hours * HOUR)
    energy = step_joules(best.estimate, cluster)
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
        save_every_seconds=good.interval_seconds,
        device_hours=hours * best.estimate.layout.workers,
        kilowatt_hours=None if energy is None else steps * energy / good.fraction / KILOWATT_HOUR,
        money=None if price is None else float(price),
        slots=slots,
    )


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
