"""`paceline watch` and `paceline report`: show a run live, and write its report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.console import Json, Quiet, RunFolder, To, print_json, say, waiting
from paceline.cli.options.grouped_command import GroupedCommand, SiteCommand
from paceline.cli.options.price_options import Price, given_prices
from paceline.cli.options.site_defaults import Site

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
            print_json(report.ReportedRun.read(folder).to_dict(), "run")
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
    context: typer.Context,
    *,
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
    price: Price = None,
    site: Site = None,
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
        opened.enter_context(waiting("the events of the runs", unless=quiet or json))
        folders = [opened.enter_context(folder_to_read(path)) for path in paths]
        found = _report_of(folders, cluster, context)
        if json:
            print_json(found.to_dict(), found.schema)
            return
        written = write(found, format, output)
    say(f"report: {written}", unless=quiet)
    if open_page:
        typer.launch(written.absolute().as_uri())


def _report_of(paths: list[Path], cluster: Path | None, context: typer.Context) -> "Report":
    from paceline.cluster.catalog import read_cluster
    from paceline.report.comparison.compared_runs import runs_in
    from paceline.report.formats import comparison_report, run_report, study_report
    from paceline.specs import PacelineError
    from paceline.study.result import result
    from paceline.study.study_folder import StudyFolder

    if len(paths) == 1 and StudyFolder.is_one(paths[0]):
        for name in ("cluster", "price"):  # a site file may set them for other reports
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                raise PacelineError(
                    f"--{name} {context.params[name]} was given, but {paths[0]} is a study",
                    fix=f"give it with one of the study's runs, in {paths[0]}/runs",
                )
        return study_report(result(StudyFolder(paths[0].absolute())))
    costs = read_cluster(cluster) if cluster else None
    runs, prices = runs_in(paths), given_prices(context)
    if len(runs) == 1:
        return run_report(runs[0], costs, prices)
    return comparison_report(runs, costs, prices)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(cls=GroupedCommand)(watch)
    app.command(cls=SiteCommand)(report)
