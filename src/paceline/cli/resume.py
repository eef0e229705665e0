"""`paceline resume` and `paceline ledger`: resume a run; check its sample ledger."""

from typing import Annotated

import typer

from paceline.cli.conclusion import conclude, conclude_submitted
from paceline.cli.console import Json, Quiet, RunFolder, messages, print_json, waiting
from paceline.cli.options import allocation_options
from paceline.cli.options.cluster_options import Partition, SchedulerName, Testbed, Wait
from paceline.cli.options.grouped_command import GroupedCommand, SiteCommand
from paceline.cli.options.layout_options import (
    BatchNorm,
    BucketMegabytes,
    FaultSettings,
    MicroBatch,
    Pipeline,
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
from paceline.jobs.user_messages import short_place


def resume(
    context: typer.Context,
    *,
    run: RunFolder,
    workers: Annotated[
        int | None,
        typer.Option(
            "-n", "--workers", min=1, help="Resume on this machine, with this many workers."
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Resume on this many nodes of the cluster.")
    ] = None,
    partition: Partition = None,
    account: allocation_options.Account = None,
    qos: allocation_options.Qos = None,
    constraint: allocation_options.Constraint = None,
    reservation: allocation_options.Reservation = None,
    gres: allocation_options.Gres = None,
    licenses: allocation_options.Licenses = None,
    exclusive: allocation_options.Exclusive = False,
    dependency: allocation_options.Dependency = None,
    begin: allocation_options.Begin = None,
    mail: allocation_options.Mail = None,
    scheduler_option: allocation_options.SchedulerOptions = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    site: Site = None,
    wait: Wait = False,
    new_code: Annotated[
        bool,
        typer.Option(
            "--new-code", help="Run your code as it is now, instead of the run's copy of it."
        ),
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
    """Resume a run from its last good checkpoint, on any number of workers, in any layout.

    Example:  paceline resume runs/gpt-20260101-120000 -n 4
    """
    from paceline.jobs.cluster_run import ClusterRequest
    from paceline.jobs.resumed_run import resume as resume_run
    from paceline.schedulers.submission import SubmittedJob

    resumed = resume_run(
        run,
        workers=workers,
        cluster=ClusterRequest(nodes=nodes, scheduler=scheduler, testbed=testbed),
        layout=given_layout(context),
        asked=allocation_options.typed_allocation(context),
        new_code=new_code,
        messages=messages(quiet=quiet, live=not json),
    )
    if isinstance(resumed, SubmittedJob):
        conclude_submitted(resumed, wait=wait, json=json, quiet=quiet)
    else:
        conclude(resumed, json=json, quiet=quiet)


def ledger(run: RunFolder, json: Json = False, quiet: Quiet = False) -> None:
    """Check the sample ledger of a run with --ledger: each sample once per epoch.

    Example:  paceline ledger runs/gpt-20260101-120000
    """
    import dataclasses

    from rich.console import Console
    from rich.table import Table

    from paceline.checkpoints.ledger import read_ledger
    from paceline.remote.places import run_to_read
    from paceline.specs import PacelineError

    with waiting("the ledger's files", unless=quiet or json), run_to_read(run) as folder:
        if not folder.ledger.is_dir():
            raise PacelineError(
                f"{short_place(folder)} has no ledger: it was started without --ledger",
                fix="start a run with `paceline run TRAIN --ledger`",
            )
        epochs = read_ledger(folder.ledger)
    # The last epoch may be incomplete: still running, or cut off by the number of steps.
    whole = all(epoch.exact for epoch in epochs[:-1])
    torn = any(epoch.repeated or epoch.incomplete_steps for epoch in epochs)
    if json:
        found = {"exact": whole and not torn, "epochs": [dataclasses.asdict(e) for e in epochs]}
        print_json(found, "ledger")
    elif not quiet:
        words = {"stream position": ", by position in the stream", "made": ", made by itself"}
        by = words.get(epochs[0].by, "") if epochs else ""
        table = Table(title=f"Samples that {folder.name} has seen{by}")
        for name in ("epoch", "steps", "once", "more than once", "not yet"):
            table.add_column(name, justify="right")
        for each in epochs:
            table.add_row(
                str(each.epoch),
                str(each.steps),
                f"{each.once + each.made:,}",
                f"{len(each.repeated):,}",
                f"{each.missing:,}",
            )
        Console().print(table)
    if torn or not whole:
        raise PacelineError(
            "some samples were seen twice or never",
            fix="please report this, with the ledger folder",
        )


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(cls=SiteCommand)(resume)
    app.command(cls=GroupedCommand)(ledger)
