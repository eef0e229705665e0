"""`paceline run`: train on the devices of this machine."""

from typing import Annotated

import typer

from paceline.cli.conclusion import conclude
from paceline.cli.console import (
    JOB,
    Json,
    NoCheck,
    Port,
    PowerLimit,
    Quiet,
    RunName,
    Runs,
    Share,
    To,
    TraceSteps,
    Train,
    messages,
)
from paceline.cli.options.checkpoint_options import Checkpoints, KeepLedger, SaveEvery, given_saving
from paceline.cli.options.layout_options import (
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
    given_layout,
)
from paceline.cli.options.site_defaults import Site
from paceline.cli.options.train_command import TrainCommand, script_arguments

DRY_RUN = "Dry run"


def run(
    context: typer.Context,
    *,
    train: Train,
    workers: Annotated[
        int | None,
        typer.Option(
            "-n", "--workers", min=1, help="Number of workers (default: one per accelerator, or 1)."
        ),
    ] = None,
    plan: PlanFile = None,
    save_every: SaveEvery = None,
    checkpoints: Checkpoints = None,
    ledger: KeepLedger = False,
    trace: TraceSteps = None,
    spares: Annotated[
        int,
        typer.Option(
            "--spares",
            min=0,
            rich_help_panel=JOB,
            help="Number of spare workers that replace lost ones.",
        ),
    ] = 0,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            "-t",
            rich_help_panel=JOB,
            help="Time limit, after which the run saves and stops: minutes, H:MM:SS or D-HH.",
        ),
    ] = None,
    runs: Runs = "runs",
    name: RunName = None,
    share: Share = False,
    site: Site = None,
    no_check: NoCheck = False,
    port: Port = None,
    power_limit: PowerLimit = None,
    to: To = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel=DRY_RUN,
            help="Train nothing; show each worker's memory and communication.",
        ),
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", min=1, rich_help_panel=DRY_RUN, help="With --dry-run: number of nodes."
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices", min=1, rich_help_panel=DRY_RUN, help="With --dry-run: workers per node."
        ),
    ] = None,
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
    """Train on the devices of this machine.

    Example:  paceline run train.py -n 2

    With script arguments:  paceline run train.py -n 2 -- --lr 3e-4
    """
    from paceline.cli.dry_run import dry_run as show_dry_run
    from paceline.cli.dry_run import refuse_cluster
    from paceline.launch.target import Target

    target = Target.parse(train, script_arguments(context))
    layout = given_layout(context)
    if dry_run:
        show_dry_run(
            target,
            plan,
            layout,
            workers=workers,
            nodes=nodes,
            devices=devices,
            json=json,
            quiet=quiet,
        )
        return
    refuse_cluster(nodes, devices)

    from paceline.jobs.local_run import run_here
    from paceline.jobs.request import TrainingRequest
    from paceline.schedulers.quantities import minutes_of
    from paceline.specs import Limits

    request = TrainingRequest(
        target=target,
        plan=plan,
        layout=layout,
        saving=given_saving(save_every, checkpoints, ledger=ledger),
        name=name,
        runs=runs,
        spares=spares,
        trace_steps=trace,
        limits=Limits(minutes=minutes_of(time) if time else None),
        port=port,
        power_limit_watts=power_limit,
        listeners=tuple(to or ()),
        share=share,
        check=not no_check,
    )
    ended = run_here(request, workers, messages(quiet=quiet, live=not json))
    conclude(ended, json=json, quiet=quiet)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(run)
