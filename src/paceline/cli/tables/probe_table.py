"""The printed result of a probe."""

from typing import TYPE_CHECKING

from paceline.cli.tables.table import console, table

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.specs import Cluster, Device
    from paceline.specs.measurements.kernels import KernelTable


def show(cluster: "Cluster") -> None:
    """Print devices, links and anomalies."""
    from paceline.specs.units import count, size

    out = console()
    device = cluster.device
    out.print(
        f"{count(cluster.nodes, 'node')} with {count(cluster.devices_per_node, 'device')} each:"
        f" {device.name}",
        markup=False,
    )
    limit = f", power limit {device.watts:.0f} W" if device.watts else ""
    out.print(
        f"device memory: {size(device.memory_bytes)},"
        f" {size(round(device.memory_bytes_per_second))}/s{limit}",
        f"inside a node: {cluster.inside.name}; between nodes: {cluster.between.name},"
        f" {count(cluster.interfaces_per_node or cluster.devices_per_node, 'interface')} per node",
        sep="\n",
        markup=False,
    )
    out.print("\n[bold]Products of square matrices in GFLOP/s[/bold]")
    out.print(_matmuls(device))
    if cluster.collectives:
        out.print("[bold]Collectives[/bold]")
        out.print(_collectives(cluster))
    for remark in cluster.remarks:
        out.print(remark, style="yellow", markup=False)
    if not cluster.remarks and cluster.nodes > 2:
        out.print("no node or link is slower than its peers")


def kernels_sentence(kernels: "KernelTable", file: str) -> str:
    """Return what was measured of the device's kernels, when, and where it is."""
    from paceline.specs.units import count

    points = sum(len(each.forward_seconds) for each in kernels.grids)
    names = " and ".join(dict.fromkeys(each.kernel for each in kernels.grids))
    precisions = ", ".join(dict.fromkeys(each.precision for each in kernels.grids))
    return (
        f"kernels by size ({names}; {precisions}; {count(points, 'size')}, measured on"
        f" {kernels.measured_on}): {file}"
    )


def _matmuls(device: "Device") -> "Table":
    from paceline.specs.units import rate

    precisions = list(dict.fromkeys(each.precision for each in device.matmuls))
    found = {(each.size, each.precision): each.flops_per_second for each in device.matmuls}
    shown = table("size", *precisions, words=())
    for size in sorted({each.size for each in device.matmuls}):
        rates = (found.get((size, precision)) for precision in precisions)
        shown.add_row(str(size), *("" if each is None else rate(each / 1e9) for each in rates))
    return shown


def _collectives(cluster: "Cluster") -> "Table":
    from paceline.specs.units import size

    columns = ("operation", "members", "nodes", "latency ms", "rate")
    shown = table(*columns, words={"operation"})
    for each in sorted(cluster.collectives, key=lambda one: one.operation):
        shown.add_row(
            each.operation,
            str(each.members),
            str(each.members // each.members_per_node),
            f"{1e3 * each.latency_seconds:.3f}",
            f"{size(round(each.bytes_per_second))}/s",
        )
    return shown
