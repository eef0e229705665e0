"""`paceline submit`: train on a cluster, through its scheduler."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import (
    Json,
    Port,
    PowerLimit,
    Quiet,
    RunName,
    Runs,
    To,
    TraceSteps,
    Train,
    print_json,
    say,
    warn,
)
from paceline.cli.options.checkpoints import Checkpoints, KeepLedger, SaveEvery, given_saving
from paceline.cli.options.cluster import (
    AssumeShared,
    Devices,
    Partition,
    SchedulerName,
    Testbed,
    Wait,
    chosen_scheduler,
)
from paceline.cli.options.layout import (
    BatchNorm,
    BucketMegabytes,
    FaultSettings,
    MicroBatch,
    Pipeline,
    PlanFile,
    Precision,
    Recompute,
    Replicas,
    Schedule,
    Sequence,
    Shards,
    SyncMode,
    Tensor,
    chosen_plan,
    given_layout,
)
from paceline.cli.run import conclude, default_name, shown

if TYPE_CHECKING:
    from paceline.schedulers.scheduler import Scheduler
    from paceline.schedulers.submission import SubmittedJob
    from paceline.specs import Run


def submit(
    context: typer.Context,
    *,
    train: Train,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=1, help="Number of nodes (default: the plan's, or 1)."),
    ] = None,
    devices: Devices = None,
    spares: Annotated[
        int, typer.Option("--spares", min=0, help="Number of spare nodes that replace lost ones.")
    ] = 0,
    plan: PlanFile = None,
    save_every: SaveEvery = None,
    checkpoints: Checkpoints = None,
    ledger: KeepLedger = False,
    trace: TraceSteps = None,
    partition: Partition = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", "-t", help="Time limit: minutes, H:MM:SS or D-HH (default: the partition's)."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Memory per node, such as 64G (default: the cluster's)."),
    ] = None,
    runs: Runs = "runs",
    name: RunName = None,
    port: Port = None,
    power_limit: PowerLimit = None,
    to: To = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    assume_shared: AssumeShared = False,
    wait: Wait = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")
    ] = False,
    replicas: Replicas = None,
    shards: Shards = None,
    tensor: Tensor = None,
    pipeline: Pipeline = None,
    micro_batch: MicroBatch = None,
    precision: Precision = None,
    recompute: Recompute = None,
    schedule: Schedule = None,
    sequence: Sequence = None,
    batch_norm: BatchNorm = None,
    bucket_megabytes: BucketMegabytes = None,
    sync: SyncMode = None,
    faults: FaultSettings = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on a cluster, through its scheduler.

    Example:  paceline submit train.py --nodes 4 --time 2:00:00 --wait
    """
    import sys
    from functools import partial

    from paceline.cli.options.listeners import given_listeners
    from paceline.launch.target import Target
    from paceline.observe.versions import write_versions
    from paceline.schedulers.quantities import megabytes_of, minutes_of
    from paceline.schedulers.submission import check_shared, fit_job, preview
    from paceline.specs import Job, Limits, Plan, Run

    layout = given_layout(context)
    target = Target.parse(train)
    planned = Plan.read(plan) if plan else Plan()
    chosen = chosen_scheduler(scheduler, testbed, quiet=quiet, dry_run=dry_run)
    wanted = Job(
        name=name or default_name(target),
        train=target.file,
        function=target.function,
        trace_steps=trace,
        nodes=nodes or planned.nodes or 1,
        spares=spares,
        partition=partition,
        limits=Limits(
            minutes=minutes_of(time) if time else None,
            memory_megabytes=megabytes_of(memory) if memory else None,
        ),
        port=port,
        power_limit_watts=power_limit,
        folder=Path.cwd(),
        python=Path(sys.executable),
        listeners=given_listeners(to),
    )
    job = fit_job(
        wanted,
        chosen,
        devices or planned.devices_per_node,
        partial(warn, unless=quiet),
        dry_run=dry_run,
    )
    if not assume_shared:
        check_shared([target.file, Path(runs).absolute().parent], chosen.site)
    saving = given_saving(save_every, checkpoints, ledger=ledger)
    followed = chosen_plan(plan, job.workers, job.workers, layout, saving)
    if dry_run:
        print(preview(Path(runs), job, followed, chosen), end="")
        return
    folder = Run.create(Path(runs), job, followed)
    write_versions(folder.versions_file, target.file)
    train_there(folder, chosen, wait=wait, json=json, quiet=quiet)


def train_there(run: "Run", scheduler: "Scheduler", *, wait: bool, json: bool, quiet: bool) -> None:
    """Submit a run's job and, with `wait`, follow it until its end."""
    from paceline.schedulers.submission import SubmittedJob

    job = run.job
    submitted = SubmittedJob.submit(run, scheduler)
    say(
        f"job {submitted.id} submitted to {scheduler.where}: {job.nodes} nodes x"
        f" {job.devices_per_node} workers{f' and {job.spares} spare nodes' if job.spares else ''}"
        f"{f', partition {job.partition}' if job.partition else ''}",
        unless=quiet,
    )
    say(f"run: {shown(run.path)}", unless=quiet)
    if wait:
        _wait(submitted, show=not (quiet or json))
        conclude(run, json=json, quiet=quiet)
    elif json:
        print_json({"run": str(run.path), "job": submitted.id, "workers": job.workers})
    else:
        say(f"next: paceline watch {shown(run.path)}", unless=quiet)


def _wait(job: "SubmittedJob", *, show: bool) -> None:
    """Wait until the run is over, and show it live if `show`."""
    import time

    from rich.console import Console

    from paceline.report import watch

    over = until_over(job)
    if show:
        watch(job.run, Console(stderr=True), until=over)
    while not over():
        time.sleep(0.2)


def until_over(job: "SubmittedJob") -> Callable[[], bool]:
    """Return a function that returns whether a submitted run is over."""
    from paceline.report import RunReader

    reader = RunReader(job.run)

    def has_ended() -> bool:
        found = reader.refresh()
        return found.ended is not None and found.over

    return lambda: job.is_over(has_ended)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(submit)
