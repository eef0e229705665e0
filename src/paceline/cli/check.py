"""`paceline check`: find in one process what would differ or fail on several workers."""

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from paceline.cli.console import Json, Quiet, Train, print_json, waiting
from paceline.cli.options.train_command import TrainCommand, script_arguments
from paceline.cli.tables.findings import show_finding

_ORDER = ("ok", "note", "bad")


def check(
    context: typer.Context,
    *,
    train: Train,
    workers: Annotated[
        int, typer.Option("-n", "--workers", min=1, help="Number of workers to divide for.")
    ] = 2,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find what would differ or fail on several workers, in one process.

    Example:  paceline check train.py
    """
    from paceline.launch.target import Target

    target = Target.parse(train, script_arguments(context))
    # Output of the user's code must not mix with the result.
    with redirect_stdout(sys.stderr), waiting("the training's first samples", unless=quiet or json):
        from paceline.parallel.check.command import findings_of
        from paceline.specs import Layout

        findings = findings_of(
            target.file, target.function, Layout(replicas=workers), target.arguments
        )
    bad = [each for each in findings if each.state == "bad"]
    if json:
        print_json({"same": not bad, "findings": [each.to_dict() for each in findings]}, "check")
    elif not quiet or bad:
        for finding in sorted(findings, key=lambda each: _ORDER.index(each.state)):
            show_finding(finding)
    if bad:
        raise typer.Exit(2)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(check)
