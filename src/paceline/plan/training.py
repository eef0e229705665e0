"""A whole training by a plan: time with failures and checkpoints, energy, money, time slots."""

from paceline.plan.best import Best
from paceline.plan.energy import money, step_joules
from paceline.plan.goodput import goodput, time_slots
from paceline.specs.cluster import Cluster
from paceline.specs.estimate import Amount, TrainingCost

HOUR = 3600.0
KILOWATT_HOUR = 3.6e6
SAVED_BYTES_PER_SECOND = 1e9
"""That one node writes to a parallel file system: assumed."""
START_SECONDS = 120.0
"""From a job's begin, or from a failure, until training goes on: assumed."""


def training_cost(
    best: Best, cluster: Cluster, steps: int, slot_seconds: float | None = None
) -> TrainingCost:
    """What `steps` steps take on the nodes of a cluster."""
    step = best.estimate.step_seconds
    parts = best.estimate.bytes
    kept = parts["weights"] + parts["optimizer"] + parts["agreeing"]
    saving = kept * cluster.devices_per_node
    checkpoint_seconds = max(saving / SAVED_BYTES_PER_SECOND, 1e-3)
    good = goodput(cluster, checkpoint_seconds, START_SECONDS)
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
