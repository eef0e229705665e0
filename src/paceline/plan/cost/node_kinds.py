"""The nodes of a cluster that a plan takes, also where they are of several kinds."""

from collections.abc import Sequence

from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster, Device

Kinds = Sequence[tuple[Device, int]]
"""Devices with the number of nodes that have them, in the order of the nodes."""


def first_nodes(cluster: Cluster, count: int) -> Cluster:
    """Return the first `count` nodes of a cluster, as equal ones.

    Where they are of several kinds, each data-parallel worker has work by its speed, so that all
    end together: as if each had a device with the mean of the rates, and the smallest memory.
    """
    if not cluster.mixed:
        return cluster.model_copy(update={"nodes": count})
    device = _mean(node_kinds(cluster, count))
    return cluster.model_copy(update={"nodes": count, "device": device, "mixed": ()})


def node_kinds(cluster: Cluster, count: int) -> Kinds:
    """Return the kinds of the first `count` nodes."""
    others = sum(each.nodes for each in cluster.mixed)
    kinds = [(cluster.device, cluster.nodes - others)]
    kinds += [(each.device, each.nodes) for each in cluster.mixed]
    found: list[tuple[Device, int]] = []
    for device, nodes in kinds:
        taken = min(nodes, count - sum(number for _, number in found))
        if taken > 0:
            found.append((device, taken))
    return found


def node_speeds(cluster: Cluster, count: int, precision: str) -> tuple[float, ...] | None:
    """Return the relative speed of each of the first `count` nodes; None if they are equal."""
    kinds = node_kinds(cluster, count)
    rates = [device.matmul_rate(precision) for device, _ in kinds]
    if len(set(rates)) == 1:
        return None
    pairs = zip(kinds, rates, strict=True)
    return tuple(round(rate / max(rates), 3) for (_, nodes), rate in pairs for _ in range(nodes))


def _mean(kinds: Kinds) -> Device:
    """Return a device with the mean rates of those of several kinds of nodes."""
    devices = [device for device, _ in kinds]
    if len(devices) == 1:
        return devices[0]
    first, total = devices[0], sum(nodes for _, nodes in kinds)
    precisions = [each for each in first.peak_flops if all(each in d.peak_flops for d in devices)]
    names = " and ".join(dict.fromkeys(each.name for each in devices))
    if not precisions:
        raise PacelineError(
            f"{names} have no precision in common", fix="plan for the nodes of one kind"
        )

    def mean(values: Sequence[float]) -> float:
        parts = zip(values, kinds, strict=True)
        return sum(value * nodes for value, (_, nodes) in parts) / total

    peaks = {each: mean([device.peak(each) for device in devices]) for each in precisions}
    reached = {
        each: mean([device.matmul_rate(each) for device in devices]) / peaks[each]
        for each in precisions
    }
    watts = [device.watts for device in devices if device.watts is not None]
    launches = [each.launch_seconds for each in devices if each.launch_seconds is not None]
    return first.model_copy(
        update={
            "name": names,
            "peak_flops": peaks,
            "matmul_efficiency": 1.0,
            "sustained_in": reached,
            "memory_bytes": min(each.memory_bytes for each in devices),
            "memory_bytes_per_second": mean([each.memory_bytes_per_second for each in devices]),
            "units": round(mean([each.units for each in devices])),
            "watts": mean(watts) if len(watts) == len(devices) else None,
            "launch_seconds": max(launches, default=None),
            "matmuls": (),
        }
    )
