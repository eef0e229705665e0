"""A probed cluster as a person reads it."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.specs import Cluster, Device

_PLAIN_WIDTH = 100


def show(cluster: "Cluster") -> None:
    """Devices, links, and what is unusual."""
    from rich.console import Console

    from paceline.report.wording import count, size

    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    device = cluster.device
    console.print(
        f"{count(cluster.nodes, 'node')} with {count(cluster.devices_per_node, 'device')} each:"
        f" {device.name}",
        markup=False,
    )
    limit = f", power limit {device.watts:.0f} W" if device.watts else ""
    console.print(
        f"memory of a device: {size(device.memory_bytes)},"
        f" {size(round(device.memory_bytes_per_second))}/s{limit}",
        f"inside a node: {cluster.inside.name}; between nodes: {cluster.between.name},"
        f" {count(cluster.interfaces_per_node or cluster.devices_per_node, 'interface')} a node",
        sep="\n",
        markup=False,
    )
    console.print("\n[bold]Products of square matrices, GFLOP/s[/bold]")
    console.print(_matmuls(device))
    if cluster.collectives:
        console.print("[bold]Collectives[/bold]")
        console.print(_collectives(cluster))
    for remark in cluster.remarks:
        console.print(remark, style="yellow", markup=False)
    if not cluster.remarks and cluster.nodes > 2:
        console.print("no node and no link is slower than its peers")


def _matmuls(device: "Device") -> "Table":
    from paceline.report.wording import rate

    precisions = list(dict.fromkeys(each.precision for each in device.matmuls))
    found = {(each.size, each.precision): each.flops_per_second for each in device.matmuls}
    table = _table("size", *precisions)
    for size in sorted({each.size for each in device.matmuls}):
        rates = (found.get((size, precision)) for precision in precisions)
        table.add_row(str(size), *("" if each is None else rate(each / 1e9) for each in rates))
    return table


def _collectives(cluster: "Cluster") -> "Table":
    from paceline.report.wording import size

    table = _table("operation", "members", "nodes", "latency ms", "rate")
    for each in sorted(cluster.collectives, key=lambda one: one.operation):
        table.add_row(
            each.operation,
            str(each.members),
            str(each.members // each.members_per_node),
            f"{1e3 * each.latency_seconds:.3f}",
            f"{size(round(each.bytes_per_second))}/s",
        )
    return table


def _table(*columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column == "operation" else "right")
    return table
