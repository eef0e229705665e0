"""`paceline submit`: train on a cluster, through its scheduler."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.conclusion import conclude_submitted, conclude_sweep
from paceline.cli.console import (
    Json,
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
    waiting,
)
from paceline.cli.options.allocation_options import (
    Account,
    Begin,
    Constraint,
    Dependency,
    Exclusive,
    Gres,
    Licenses,
    Mail,
    Qos,
    Reservation,
    SchedulerOptions,
    given_allocation,
)
from paceline.cli.options.checkpoint_options import Checkpoints, KeepLedger, SaveEvery, given_saving
from paceline.cli.options.cluster_options import (
    AssumeShared,
    Devices,
    Partition,
    SchedulerName,
    Testbed,
    Wait,
)
from paceline.cli.options.container_options import (
    Binds,
    Image,
    Runtime,
    RuntimeOptions,
    given_container,
)
from paceline.cli.options.environment_options import (
    KeptVariables,
    Setup,
    Teardown,
    Variables,
    given_environment,
)
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
    account: Account = None,
    qos: Qos = None,
    constraint: Constraint = None,
    reservation: Reservation = None,
    gres: Gres = None,
    licenses: Licenses = None,
    exclusive: Exclusive = False,
    dependency: Dependency = None,
    begin: Begin = None,
    mail: Mail = None,
    scheduler_option: SchedulerOptions = None,
    setup: Setup = None,
    teardown: Teardown = None,
    env: Variables = None,
    keep_env: KeptVariables = None,
    container: Image = None,
    container_runtime: Runtime = None,
    container_bind: Binds = None,
    container_option: RuntimeOptions = None,
    runs: Runs = "runs",
    name: RunName = None,
    share: Share = False,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help="Check here, or not at all, that the training can be divided (default: on the"
            " job's first node).",
        ),
    ] = None,
    port: Port = None,
    power_limit: PowerLimit = None,
    to: To = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    site: Site = None,
    assume_shared: AssumeShared = False,
    array: Annotated[
        Path | None,
        typer.Option(
            "--array",
            metavar="TABLE",
            help="Submit a run for each row of a CSV file of script arguments.",
        ),
    ] = None,
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
    from paceline.cli.options.sweep_table import read_rows
    from paceline.jobs import cluster_run
    from paceline.jobs.request import TrainingRequest
    from paceline.launch.target import Target
    from paceline.schedulers.quantities import megabytes_of, minutes_of
    from paceline.specs import Limits

    rows = read_rows(array) if array is not None else []
    request = TrainingRequest(
        target=Target.parse(train, script_arguments(context)),
        plan=plan,
        layout=given_layout(context),
        saving=given_saving(save_every, checkpoints, ledger=ledger),
        name=name,
        runs=runs,
        spares=spares,
        trace_steps=trace,
        limits=Limits(
            minutes=minutes_of(time) if time else None,
            memory_megabytes=megabytes_of(memory) if memory else None,
        ),
        allocation=given_allocation(context),
        environment=given_environment(context),
        container=given_container(container, container_runtime, container_bind, container_option),
        port=port,
        power_limit_watts=power_limit,
        listeners=tuple(to or ()),
        share=share,
        check=check is None,
    )
    cluster = cluster_run.ClusterRequest(
        nodes=nodes,
        devices=devices,
        partition=partition,
        scheduler=scheduler,
        testbed=testbed,
        assume_shared=assume_shared,
        check_here=check is True,
    )
    if dry_run:
        print(cluster_run.preview(request, cluster, messages(quiet=quiet)), end="")
        return
    if array is not None:
        jobs = cluster_run.submit_sweep(request, cluster, rows, messages(quiet=quiet))
        conclude_sweep(jobs, wait=wait, json=json, quiet=quiet)
        return
    with waiting("the scheduler's answers", unless=quiet or json):
        job = cluster_run.submit(request, cluster, messages(quiet=quiet))
    conclude_submitted(job, wait=wait, json=json, quiet=quiet)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(submit)
