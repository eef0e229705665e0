"""The printed results of `paceline doctor --devices`."""

from typing import TYPE_CHECKING

from paceline.cli.tables.table import console, table

if TYPE_CHECKING:
    from paceline.conformance.report import ConformanceReport

_COLORS = {"passed": "green", "failed": "red", "not applicable": "yellow"}


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
