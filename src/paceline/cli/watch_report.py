"""`paceline watch` and `paceline report`: show a run live, and write its report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.console import Json, Quiet, RunFolder, To, print_json, say

if TYPE_CHECKING:
    from paceline.report.formats import Report


def watch(run: RunFolder, to: To = None, json: Json = False, quiet: Quiet = False) -> None:
    """Show a run live, and forward its metrics to other tools.

    Example:  paceline watch runs/gpt-20260101-120000 --to tensorboard
    """
    from rich.console import Console

    from paceline import report
    from paceline.cli.options.listener_options import follow
    from paceline.jobs.waiting_job import job_of, why_waiting
    from paceline.remote.mirror import followed
    from paceline.remote.places import run_to_read
    from paceline.specs import PacelineError

    if json and to:
        raise PacelineError(
            f"--json prints a run once, but --to {to[0]} follows it to its end",
            fix="leave one of them out",
        )
    if json:
        with run_to_read(run) as folder:
            print_json(report.ReportedRun.read(folder).to_dict())
        return
    try:
        with followed(run) as folder:
            if to:
                follow(folder, to, Console(quiet=quiet))
            else:
                waits = why_waiting(job_of(folder))
                report.watch(folder, Console(quiet=quiet), why_waiting=waits)
    except KeyboardInterrupt:
        say("the run goes on; only the watching ended")


def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="A run or study folder, or a run's URL; several are compared."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Output file, or a directory for svg and png (default: report.html, .pdf, …).",
        ),
    ] = None,
    format: Annotated[
        Literal["html", "pdf", "svg", "png", "csv", "latex"],
        typer.Option(
            "--format", help="HTML page, PDF, charts (svg, png), figures as CSV, or a LaTeX table."
        ),
    ] = "html",
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster", metavar="FILE", help="cluster.toml with power, carbon and price figures."
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a report of a run or a study, or compare several runs.

    Example:  paceline report runs/gpt-20260101-120000 -o gpt.html
    """
    from contextlib import ExitStack

    from paceline.remote.places import folder_to_read
    from paceline.report.formats import write

    with ExitStack() as opened:
        found = _report_of([opened.enter_context(folder_to_read(path)) for path in paths], cluster)
        if json:
            print_json(found.to_dict())
            return
        written = write(found, format, output)
    say(f"report: {written}", unless=quiet)
    if open_page:
        typer.launch(written.absolute().as_uri())


def _report_of(paths: list[Path], cluster: Path | None) -> "Report":
    from paceline.cluster.catalog import read_cluster
    from paceline.report.comparison.compared_runs import runs_in
    from paceline.report.formats import comparison_report, run_report, study_report
    from paceline.specs import PacelineError
    from paceline.study.result import result
    from paceline.study.study_folder import StudyFolder

    costs = read_cluster(cluster) if cluster else None
    if len(paths) == 1 and StudyFolder.is_one(paths[0]):
        if cluster is not None:
            raise PacelineError(
                f"--cluster {cluster} was given, but {paths[0]} is a study",
                fix=f"give it with one of the study's runs, in {paths[0]}/runs",
            )
        return study_report(result(StudyFolder(paths[0].absolute())))
    runs = runs_in(paths)
    return run_report(runs[0], costs) if len(runs) == 1 else comparison_report(runs, costs)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(watch)
    app.command()(report)
