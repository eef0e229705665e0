"""`paceline watch` and `paceline report`: look at a run, while it runs and after."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.words import Json, Quiet, RunFolder, To, print_json, say

if TYPE_CHECKING:
    from paceline.specs import StudyResult


def watch(run: RunFolder, to: To = None, json: Json = False, quiet: Quiet = False) -> None:
    """Look at a run while it runs, and tell other tools of it.

    Example:  paceline watch runs/gpt-20260101-120000 --to tensorboard
    """
    from rich.console import Console

    from paceline import report
    from paceline.cli.listening import follow
    from paceline.specs import PacelineError, Run

    if json and to:
        raise PacelineError(
            f"--json prints a run once, but --to {to[0]} follows it to its end",
            fix="leave one of them out",
        )
    folder = Run.open(Path(run))
    if json:
        print_json(report.summary(report.RunReader(folder).refresh()).to_dict())
        return
    try:
        if to:
            follow(folder, to, Console(quiet=quiet))
        else:
            report.watch(folder, Console(quiet=quiet))
    except KeyboardInterrupt:
        say("the run goes on; only the watching ended")


_SUFFIX = {"html": ".html", "csv": ".csv", "latex": ".tex"}


def report(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder of a run or a study.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="report.html, .csv or .tex if not given."
        ),
    ] = None,
    format: Annotated[
        Literal["html", "csv", "latex"],
        typer.Option("--format", help="Form of the report; of a run, only html."),
    ] = "html",
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster", metavar="FILE", help="cluster.toml: watts, carbon and prices of a run."
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one page about a run or a study.

    Example:  paceline report runs/gpt-20260101-120000 -o gpt.html
    """
    from paceline.cluster.catalogue import read_cluster
    from paceline.report import RunReader, render, summary
    from paceline.specs import PacelineError, Run
    from paceline.study.folder import StudyFolder
    from paceline.study.result import result

    output = output or Path("report").with_suffix(_SUFFIX[format])
    if StudyFolder.is_one(Path(path)):
        if cluster is not None:
            raise PacelineError(
                f"--cluster {cluster} was given, but {path} is a study",
                fix=f"give it with one of the study's runs, in {path}/runs",
            )
        found = result(StudyFolder(Path(path).absolute()))
        if json:
            print_json(found.model_dump(mode="json"))
            return
        output.write_text(_study_as(format, found))
    else:
        if format != "html":
            raise PacelineError(
                f"--format {format} was given, but {path} is a run, not a study",
                fix="use --json for the figures of a run",
            )
        folder = Run.open(Path(path))
        costs = read_cluster(cluster) if cluster else None
        if json:
            print_json(summary(RunReader(folder).refresh(), costs).to_dict())
            return
        output.write_text(render(folder, costs))
    say(f"report: {output}", unless=quiet)
    if open_page:
        typer.launch(output.absolute().as_uri())


def _study_as(form: str, found: "StudyResult") -> str:
    from paceline.report.quality_tables import quality_latex, quality_rows
    from paceline.report.study import render_study
    from paceline.report.study_tables import study_rows, to_csv, to_latex

    if form == "html":
        return render_study(found)
    if found.quality is not None:
        return to_csv(quality_rows(found)) if form == "csv" else quality_latex(found)
    rows = study_rows(found)
    return to_csv(rows) if form == "csv" else to_latex(rows, found)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(watch)
    app.command()(report)
