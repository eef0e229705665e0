"""`paceline watch` and `paceline report`: look at a run, while it runs and after."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.words import Json, Quiet, RunFolder, print_json, say


def watch(run: RunFolder, json: Json = False, quiet: Quiet = False) -> None:
    """Look at a run while it runs.

    Example:  paceline watch runs/gpt-20260101-120000
    """
    from rich.console import Console

    from paceline import report
    from paceline.specs import Run

    folder = Run.open(Path(run))
    if json:
        print_json(report.summary(report.RunReader(folder).refresh()).to_dict())
        return
    try:
        report.watch(folder, Console(quiet=quiet))
    except KeyboardInterrupt:
        say("the run goes on; only the watching ended")


def report(
    run: RunFolder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    format: Annotated[Literal["html"], typer.Option("--format", help="Form of the report.")] = (
        "html"
    ),
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one page about a run.

    Example:  paceline report runs/gpt-20260101-120000 -o gpt.html
    """
    from paceline.report import RunReader, render, summary
    from paceline.specs import Run

    del format  # one form so far; the option stays
    folder = Run.open(Path(run))
    if json:
        print_json(summary(RunReader(folder).refresh()).to_dict())
        return
    output.write_text(render(folder))
    say(f"report: {output}", unless=quiet)
    if open_page:
        typer.launch(output.absolute().as_uri())


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(watch)
    app.command()(report)
