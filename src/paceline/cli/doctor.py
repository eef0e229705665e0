"""`paceline doctor`: check this machine and report problems with their fixes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from paceline.cli.console import Json, Quiet, print_json
from paceline.cli.tables.findings import show_finding

if TYPE_CHECKING:
    from paceline.specs.finding import Finding


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Check this machine and report problems with their fixes.

    Example:  paceline doctor
    """
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not (json or quiet):
            show_finding(finding)
    if json:
        print_json({"findings": [finding.to_dict() for finding in findings]})
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator["Finding"]:
    from paceline.doctor import examine
    from paceline.specs.finding import Finding
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
