"""`paceline doctor`: check this machine, or its devices, and report problems with their fixes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import Json, Quiet, Runs, messages, print_json, say
from paceline.cli.options.cluster_options import AssumeShared, Partition, SchedulerName, Testbed
from paceline.cli.options.grouped_command import SiteCommand
from paceline.cli.tables.findings import show_finding
from paceline.jobs.user_messages import short_path
from paceline.observe.progress_bar import progress_bar

if TYPE_CHECKING:
    from paceline.conformance.report import ConformanceReport
    from paceline.jobs.cluster_run import ClusterRequest
    from paceline.specs.finding import Finding

_DEVICES = "Devices"


def doctor(
    devices: Annotated[
        bool,
        typer.Option(
            "--devices",
            rich_help_panel=_DEVICES,
            help="Train on the devices, break things, measure, and write a report: up to 10"
            " minutes.",
        ),
    ] = False,
    checks: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="NAME",
            rich_help_panel=_DEVICES,
            help="Run only this check; repeatable (default: all).",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--workers",
            min=1,
            rich_help_panel=_DEVICES,
            help="Workers per node (default: one per accelerator, or 2 on CPUs).",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            rich_help_panel=_DEVICES,
            help="Check this many nodes of the cluster.",
        ),
    ] = None,
    draft: Annotated[
        bool,
        typer.Option("--site", help="Write a first site file from what this machine tells."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Report or site file to write (default: devices.json, site.toml).",
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            metavar="FILE",
            rich_help_panel=_DEVICES,
            help="Show a report, and check that it is unchanged.",
        ),
    ] = None,
    partition: Partition = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    assume_shared: AssumeShared = False,
    runs: Runs = "runs",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check this machine and report problems with their fixes.

    Example:  paceline doctor

    Example:  paceline doctor --devices

    Example:  paceline doctor --devices --nodes 2

    Example:  paceline doctor --site
    """
    if verify is not None:
        from paceline.conformance.report import ConformanceReport

        _conclude(ConformanceReport.read_verified(verify), json=json, quiet=quiet)
    elif draft:
        _draft_site(scheduler, testbed, output or Path("site.toml"), json=json, quiet=quiet)
    elif devices:
        from paceline.jobs.cluster_run import ClusterRequest

        cluster = ClusterRequest(
            nodes=nodes,
            devices=workers,
            partition=partition,
            scheduler=scheduler,
            testbed=testbed,
            assume_shared=assume_shared,
        )
        report = _checked_devices(cluster, checks or [], Path(runs), quiet=quiet or json)
        written = output or Path("devices.json")
        report.write(written)
        say(f"report: {short_path(written.absolute())}", unless=quiet or json)
        _conclude(report, json=json, quiet=quiet)
    else:
        if nodes or workers or checks:
            from paceline.specs import PacelineError

            raise PacelineError(
                "an option for checks of devices was given without --devices",
                fix="add --devices",
            )
        _check_machine(json=json, quiet=quiet)


def _draft_site(
    name: str | None, testbed: str | None, file: Path, *, json: bool, quiet: bool
) -> None:
    """Write a first site file, and say what is missing in it."""
    from paceline.cli.options.cluster_options import chosen_scheduler
    from paceline.jobs.site_draft import draft_site
    from paceline.schedulers.site import Unreachable

    try:
        scheduler = chosen_scheduler(name, testbed, quiet=quiet or json)
    except Unreachable as error:
        if name or testbed:
            raise
        say(f"{error.problem}; the file has no choices", unless=quiet or json)
        scheduler = None
    found = draft_site(scheduler)
    found.write(file)
    if json:
        print_json({"file": str(file), "missing": list(found.missing)}, "doctor.site")
        return
    if not quiet:
        print(found.text, end="")
    say(f"site file: {file}", unless=quiet)
    for each in found.missing:
        say(f"fill in {each}", unless=quiet)
    say("then it gives every command's options their defaults: docs/sites.md", unless=quiet)


def _check_machine(*, json: bool, quiet: bool) -> None:
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not (json or quiet):
            show_finding(finding)
    if json:
        print_json({"findings": [finding.to_dict() for finding in findings]}, "doctor")
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _checked_devices(
    cluster: "ClusterRequest", names: list[str], runs: Path, *, quiet: bool
) -> "ConformanceReport":
    from paceline.conformance.runner import chosen_checks, report_of, results
    from paceline.conformance.session import session_on

    checks = chosen_checks(names)
    session = session_on(cluster, runs, messages(quiet=quiet))
    found = []
    with progress_bar("devices", show=not quiet) as advance:
        for result, problem in results(checks, session, advance):
            found.append(result)
            say(f"{result.name}: {result.state} ({result.seconds:.0f} s)", unless=quiet)
            if problem:
                say(problem, unless=quiet)
    return report_of(session, found)


def _conclude(report: "ConformanceReport", *, json: bool, quiet: bool) -> None:
    """Print a report; exit with 1 if a check failed."""
    from paceline.cli.tables.conformance_table import show

    if json:
        print_json(report.content(), "doctor.devices")
    elif not quiet:
        show(report)
    if not report.passed:
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
    app.command(cls=SiteCommand)(doctor)
