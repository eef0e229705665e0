"""The printed results of `paceline doctor --devices`."""

from typing import TYPE_CHECKING, Any

from paceline.cli.tables.table import console, table

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.conformance.report import ConformanceReport

_COLORS = {
    "passed": "green",
    "failed": "red",
    "not resolved": "yellow",
    "not applicable": "yellow",
}


def show(report: "ConformanceReport") -> None:
    """Print a row per check."""
    from rich.markup import escape

    from paceline.specs.units import count

    out = console()
    out.print(
        f"Paceline {report.paceline}, {report.date}: {count(report.nodes, 'node')} with"
        f" {count(report.devices_per_node, 'device')} each"
    )
    shown = table("check", "result", "s", "figure", words={"check", "result", "figure"})
    for each in report.checks:
        state = f"[{_COLORS[each.state]}]{each.state}[/]"
        shown.add_row(each.name, state, f"{each.seconds:.1f}", escape(each.figure))
    out.print(shown)
    rows = [row for each in report.checks for row in each.figures.get("binding", [])]
    if rows:
        out.print(_binding(rows))


def _binding(rows: list[dict[str, Any]]) -> "Table":
    names = ("worker", "device", "PCI", "NUMA node", "cores", "nearest adapter")
    shown = table(*names, words=names[1:])
    for row in rows:
        known = (row["pci_address"], row["numa_node"], row["cores"])
        words = ("-" if each is None else str(each) for each in known)
        device = f"{row['device']} {row['name']}"
        shown.add_row(str(row["worker"]), device, *words, ", ".join(row["adapters"]) or "-")
    return shown
