"""`paceline probe`: measure devices and links, on this machine or a cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import Json, Port, Quiet, Runs, print_json, say, warn
from paceline.cli.options.cluster import (
    AssumeShared,
    Devices,
    Partition,
    SchedulerName,
    Testbed,
    chosen_scheduler,
)
from paceline.cli.progress import progress
from paceline.cli.run import refuse_failed, shown
from paceline.cli.submit import until_over

if TYPE_CHECKING:
    from paceline.schedulers.scheduler import Scheduler
    from paceline.specs import Job, Run

LONGEST_MINUTES = 10
"""Time limit of a probe's job; a probe takes less than five minutes."""
_POLL_SECONDS = 0.1


def probe(
    *,
    train: Annotated[
        str | None,
        typer.Argument(metavar="[TRAIN]", help="Also time this training's model on the devices."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Cluster file to write.")
    ] = Path("cluster.toml"),
    profile: Annotated[
        Path, typer.Option("--profile", metavar="FILE", help="With TRAIN: profile to write.")
    ] = Path("profile.toml"),
    workers: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--workers",
            min=1,
            help="Workers on this machine (default: one per accelerator, or 1).",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Probe this many nodes of the cluster.")
    ] = None,
    devices: Devices = None,
    partition: Partition = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    assume_shared: AssumeShared = False,
    runs: Runs = "runs",
    port: Port = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure devices and links, and list those that are slower than their peers.

    Example:  paceline probe --nodes 4
    """
    import datetime
    import sys
    import time

    from paceline.cli.tables.probe_table import show
    from paceline.cluster.probe.assemble import cluster_of
    from paceline.cluster.probe.probe_folder import read_probed
    from paceline.launch.target import Target
    from paceline.specs import Job

    begin = time.monotonic()
    _refuse_folder(output)
    target = Target.parse(train) if train else None
    if target:
        _refuse_folder(profile)
    job = Job(
        name="probe",
        probe=True,
        train=target.file if target else None,
        function=target.function if target else "training",
        port=port,
        folder=Path.cwd(),
        python=Path(sys.executable),
        partition=partition,
    )
    if nodes is None and testbed is None and scheduler is None:
        _refuse_without_nodes(devices, partition)
        run = _probed_here(job, workers, runs, quiet=quiet or json)
    else:
        _refuse_workers(workers)
        job = job.model_copy(update={"nodes": nodes or 1})
        chosen = chosen_scheduler(scheduler, testbed, quiet=quiet or json)
        run = _probed_there(
            job, devices, chosen, runs, assume_shared=assume_shared, quiet=quiet or json
        )
    probed = read_probed(run)
    cluster = cluster_of(probed, datetime.date.today())
    cluster.write(output)
    if probed.profile is not None:
        probed.profile.write(profile)
    seconds = time.monotonic() - begin
    if json:
        print_json(
            {"file": str(output), "run": str(run.path), "seconds": seconds}
            | {"cluster": cluster.model_dump(mode="json", exclude_none=True)}
        )
    elif not quiet:
        show(cluster)
        say(
            f"probed in {seconds:.0f} s: {shown(output.absolute())}; all times in {shown(run.path)}"
        )


def _probed_here(job: "Job", workers: int | None, runs: str, *, quiet: bool) -> "Run":
    """Probe with workers on this machine."""
    from paceline.launch import supervisor

    accelerators = supervisor.accelerators()
    job = job.model_copy(update={"devices_per_node": workers or max(1, accelerators)})
    warning = supervisor.check_room(job.workers, accelerators)
    if warning:
        say(warning, unless=quiet)
    run = _new_run(job, runs)
    launch = supervisor.LocalLaunch(run)
    try:
        _follow(run, lambda: launch.poll() is not None, quiet=quiet)
    finally:
        launch.kill()
    return run


def _probed_there(
    job: "Job",
    devices: int | None,
    scheduler: "Scheduler",
    runs: str,
    *,
    assume_shared: bool,
    quiet: bool,
) -> "Run":
    """Probe with workers on the nodes of a cluster."""
    from functools import partial

    from paceline.schedulers.submission import SubmittedJob, check_shared, fit_job
    from paceline.specs import Limits

    job = job.model_copy(update={"limits": Limits(minutes=LONGEST_MINUTES)})
    job = fit_job(job, scheduler, devices, partial(warn, unless=quiet))
    if not assume_shared:
        files = [job.train] if job.train else []
        check_shared([*files, Path(runs).absolute().parent], scheduler.site)
    run = _new_run(job, runs)
    submitted = SubmittedJob.submit(run, scheduler)
    say(f"job {submitted.id} submitted to {scheduler.where}", unless=quiet)
    try:
        _follow(run, until_over(submitted), quiet=quiet)
    except KeyboardInterrupt:
        submitted.cancel()
        raise
    return run


def _new_run(job: "Job", runs: str) -> "Run":
    from paceline.observe.versions import write_versions
    from paceline.specs import Layout, Plan, Run

    run = Run.create(Path(runs), job, Plan(layout=Layout(replicas=job.workers)))
    write_versions(run.versions_file, None)
    return run


def _follow(run: "Run", over: Callable[[], bool], *, quiet: bool) -> None:
    """Show the probe's progress until it ends; raise if it failed."""
    import time

    from paceline.cluster.probe.probe_folder import done_part
    from paceline.report import RunReader

    with progress("probe", show=not quiet) as advance:
        while not over():
            advance(done_part(run))
            time.sleep(_POLL_SECONDS)
    refuse_failed(run, RunReader(run).refresh())


def _refuse_folder(output: Path) -> None:
    """Refuse an output file in a missing folder, before the probe spends minutes."""
    from paceline.specs import PacelineError

    if not output.absolute().parent.is_dir():
        raise PacelineError(
            f"there is no folder {output.parent} for {output.name}",
            fix="make it, or give another file with -o",
        )


def _refuse_workers(workers: int | None) -> None:
    from paceline.specs import PacelineError

    if workers is not None:
        raise PacelineError(
            f"-n {workers} was given, which is for a probe here, with nodes of a cluster",
            fix="use --devices N for the workers of each node",
        )


def _refuse_without_nodes(devices: int | None, partition: str | None) -> None:
    from paceline.specs import PacelineError

    given = "--devices" if devices is not None else "--partition" if partition else None
    if given:
        raise PacelineError(
            f"{given} was given without --nodes, so this machine would be probed",
            fix="add --nodes N to probe a cluster, or use -n N for the workers here",
        )


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(probe)
