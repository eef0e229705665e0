"""Energy of a step or a training.

A device draws a fraction of its power limit that depends on its activity; the rest of its node
draws constant power. Switches, storage and cooling outside the nodes are not counted.
"""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.step_time import Times
from paceline.specs.measurements.cluster import Cluster, NodePower
from paceline.specs.plans.estimate import Estimate, Origin

HOUR = 3600.0
MEASURED_DEVICES = 8
HGX_H100 = NodePower(
    other_watts=1800,
    computing=0.89,
    communicating=0.4,
    idle=0.1,
    supply_efficiency=0.974,
    source="eight H100 SXM in an air-cooled node, fitted to three one-node benchmarks of MLPerf 4.0"
    " (power logs of smc); idle and communicating assumed: GPUs near idle while they exchange"
    " (Choukse et al. 2025), more where the exchange is hidden or kernels wait in a loop",
)


@dataclass(frozen=True)
class Activity:
    """Seconds of a device by activity."""

    computing: Array
    communicating: Array
    """Communication, or waiting for other workers."""
    idle: Array

    @classmethod
    def of(cls, times: Times) -> "Activity":
        """Return the activity in a step; waiting for a stage or a straggler counts as
        communication."""
        return cls(
            computing=times.compute + times.recompute + times.optimizer,
            communicating=times.tensor + times.transfer + times.data + times.bubble + times.jitter,
            idle=times.host,
        )


def node_power(cluster: Cluster) -> tuple[NodePower, Origin]:
    """Return the power of the cluster's file, else that of measured nodes with eight H100.

    For another number of devices, the power of the rest of the node scales in proportion.
    """
    if cluster.power is not None:
        return cluster.power, "measured"
    by = cluster.devices_per_node / MEASURED_DEVICES
    scaled = HGX_H100.model_copy(update={"other_watts": HGX_H100.other_watts * by})
    same = cluster.device.name.startswith("h100") and by == 1
    return scaled, "published" if same else "assumed"


def joules(cluster: Cluster, activity: Activity) -> Array | None:
    """Return the energy of all nodes at the wall; None if the device's power limit is unknown."""
    watts = cluster.device.watts
    if watts is None:
        return None
    power, _ = node_power(cluster)
    return cluster.nodes * node_joules(power, watts, cluster.devices_per_node, activity)


def step_joules(estimate: Estimate, cluster: Cluster) -> float | None:
    """Return the energy of one step on all nodes; None if the device's power limit is unknown."""
    times = Times(**{name: np.asarray(each) for name, each in estimate.seconds.items()})
    energy = joules(cluster, Activity.of(times))
    return None if energy is None else float(energy)


def node_joules(power: NodePower, watts: float, devices: int, activity: Activity) -> Array:
    """Return the energy of one node with `devices` devices, each limited to `watts`."""
    seconds = activity.computing + activity.communicating + activity.idle
    drawn = (
        power.computing * activity.computing
        + power.communicating * activity.communicating
        + power.idle * activity.idle
    )
    inside = power.other_watts * seconds + devices * watts * drawn
    return np.asarray(inside / power.supply_efficiency)
