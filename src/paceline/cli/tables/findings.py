"""The findings of `paceline doctor` and `paceline check`, one per line, each problem with a fix."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.specs.finding import Finding

_SIGNS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "bad": ("✗", "red")}


def show_finding(finding: "Finding") -> None:
    """Print a finding on standard output."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    sign, color = _SIGNS[finding.state]
    console.print(f"[{color}]{sign}[/]  {finding.what:<10}  {escape(finding.text)}")
    if finding.fix:
        console.print(f"{'':15}[dim]-> {escape(finding.fix)}[/]")
