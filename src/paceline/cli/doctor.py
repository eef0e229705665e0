"""`paceline doctor`: check this machine and report problems with their fixes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from paceline.cli.console import Json, Quiet, print_json

if TYPE_CHECKING:
    from paceline.doctor import Finding

_COLOR = {"ok": "green", "note": "yellow", "bad": "red"}


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Check this machine and report problems with their fixes.

    Example:  paceline doctor
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True, quiet=quiet)
    findings = []
    for finding in _findings():
        findings.append(finding)
        if json:
            continue
        color = _COLOR[finding.state]
        sign = f"[{color}]{finding.state:<4}[/]"
        console.print(f"{sign}  {finding.what:<8}  {escape(finding.text)}")
        if finding.fix:
            console.print(f"{'':16}[dim]-> {escape(finding.fix)}[/]")
    if json:
        print_json({"findings": [finding.to_dict() for finding in findings]})
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator["Finding"]:
    from paceline.doctor import Finding, examine
    from paceline.testbed.requirements import missing

    yield from examine()
    lacking = missing()
    for each in lacking:
        yield Finding("testbed", "note", each.what, each.fix)
    if not lacking:
        yield Finding("testbed", "ok", "`paceline testbed up` can run here")


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(doctor)
