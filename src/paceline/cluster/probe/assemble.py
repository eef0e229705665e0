"""Assembly of a `Cluster` from the workers' measurements."""

import datetime
from statistics import median

from paceline.cluster.probe.link_fit import costs
from paceline.cluster.probe.outliers import remarks
from paceline.specs.measurements.cluster import (
    Cluster,
    CollectiveCost,
    Device,
    Link,
    MatmulRate,
    Precision,
)
from paceline.specs.measurements.probe import Probed


def cluster_of(probed: Probed, day: datetime.date) -> Cluster:
    """Return a cluster of equal nodes with the medians over workers; remarks list the outliers."""
    source = f"measured by paceline probe on {day.isoformat()}"
    lines = costs(probed.collectives)
    inside = _link(lines, True, f"{probed.backend} inside a node", source)
    between = _link(lines, False, f"{probed.backend} over {probed.interface}", source)
    memory = Link(
        name="memory",
        latency_seconds=0.0,
        bytes_per_second=median(each.memory_bytes_per_second for each in probed.workers),
        source="assumed: memory bandwidth; there was only one worker",
    )
    interfaces = None
    if between is not None:
        between, interfaces = _whole_interfaces(between, probed)
    return Cluster(
        nodes=probed.nodes,
        devices_per_node=probed.devices_per_node,
        device=_device(probed, source),
        inside=inside or _unmeasured(between, "between nodes") or memory,
        between=between or _unmeasured(inside, "inside the node") or memory,
        interfaces_per_node=interfaces,
        collectives=lines,
        remarks=remarks(probed),
    )


def _device(probed: Probed, source: str) -> Device:
    first = probed.workers[0]
    matmuls = _matmuls(probed)
    best: dict[Precision, float] = {}
    for each in matmuls:
        best[each.precision] = max(best.get(each.precision, 0.0), each.flops_per_second)
    return Device(
        name=first.device,
        kind=first.kind,
        peak_flops=best,
        memory_bytes=min(each.memory_bytes for each in probed.workers),
        memory_bytes_per_second=median(each.memory_bytes_per_second for each in probed.workers),
        units=first.units,
        launch_seconds=median(each.launch_seconds for each in probed.workers),
        matmul_efficiency=1.0,
        sustained=1.0,
        watts=first.watts,
        source=source,
        efficiency_source=source,
        sustained_source=source,
        matmuls=matmuls,
    )


def _matmuls(probed: Probed) -> tuple[MatmulRate, ...]:
    """Return the median rate for each size that all workers measured."""
    rates: dict[tuple[Precision, int], list[float]] = {}
    for worker in probed.workers:
        for each in worker.matmuls:
            rates.setdefault((each.precision, each.size), []).append(each.flops_per_second)
    return tuple(
        MatmulRate(size=size, precision=precision, flops_per_second=median(found))
        for (precision, size), found in rates.items()
        if len(found) == len(probed.workers)
    )


def _link(lines: tuple[CollectiveCost, ...], inside: bool, name: str, source: str) -> Link | None:
    """Return the link that a send between two workers measured."""
    for each in lines:
        same_node = each.members_per_node == each.members
        if each.operation == "send" and same_node == inside:
            return Link(
                name=name,
                latency_seconds=each.latency_seconds,
                bytes_per_second=each.bytes_per_second,
                source=source,
            )
    return None


def _whole_interfaces(share: Link, probed: Probed) -> tuple[Link, int]:
    """Return one network interface of a node, and their number.

    `share` is a device's rate while all devices send. A single pair's rate, while the others are
    idle, is the rate of an interface.
    """
    devices = probed.devices_per_node
    alone = median(each.bytes_per_second for each in probed.pairs)
    together = devices * share.bytes_per_second
    interfaces = min(max(round(together / alone), 1), devices)
    return share.model_copy(update={"bytes_per_second": together / interfaces}), interfaces


def _unmeasured(other: Link | None, tier: str) -> Link | None:
    """Return a placeholder for a link that the probe did not measure."""
    if other is None:
        return None
    return other.model_copy(update={"name": "none", "source": f"assumed: as {tier}"})
