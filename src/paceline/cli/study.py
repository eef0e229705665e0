"""`paceline study`: measure how a training scales, or compare the quality of its results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.console import Json, Quiet, Train, print_json, say
from paceline.cli.options import allocation_options, cluster_options, layout_options
from paceline.cli.options.checkpoint_options import KeepLedger
from paceline.cli.options.site_defaults import Site
from paceline.cli.options.train_command import TrainCommand, script_arguments
from paceline.jobs.user_messages import short_path

if TYPE_CHECKING:
    from paceline.specs import StudyResult
    from paceline.study.runner import Progress


def study(
    context: typer.Context,
    *,
    train: Train,
    workers: Annotated[
        str | None,
        typer.Option(
            "-n", "--workers", metavar="N[,N…]", help="Numbers of workers on this machine."
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="N[,N…]", help="Numbers of nodes of the cluster."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="N[,N…]",
            help="With --nodes: numbers of workers per node (default: 1).",
        ),
    ] = None,
    kind: Annotated[
        Literal["strong", "weak", "quality", "batch"],
        typer.Option(
            "--kind",
            help="strong: the same global batch on all; weak: the same local batch per worker;"
            " quality: compare what the model learned; batch: up to which batch it learns as well.",
        ),
    ] = "strong",
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=A,B",
            help="Also vary an option of `run`, the batch, a testbed's link, or for quality"
            " and batch lr=naive,scaled (repeatable).",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            "--seeds",
            min=1,
            help="Runs per point (default: 3; quality and batch: 5 seeds).",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=2, help="Steps per run (default: 60; quality and batch: all)."),
    ] = None,
    begin_at: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN[@STEP]",
            help="With --kind batch: start every run from this checkpoint, by default the run's"
            " newest, and count --steps after it.",
        ),
    ] = None,
    warm_up: Annotated[
        int, typer.Option("--warm-up", min=1, help="First steps to leave out of the measurement.")
    ] = 10,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            help="For quality and batch: largest relative difference that counts as equal"
            " (default: 0.01).",
        ),
    ] = None,
    at_once: Annotated[
        int,
        typer.Option(
            "--at-once", min=1, help="Runs at the same time; they may disturb each other."
        ),
    ] = 1,
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="Also predict each point from this cluster file (default: none).",
        ),
    ] = None,
    partition: cluster_options.Partition = None,
    time: Annotated[
        str | None,
        typer.Option("--time", "-t", help="Time limit per run: minutes, H:MM:SS or D-HH."),
    ] = None,
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
    scheduler: cluster_options.SchedulerName = None,
    testbed: cluster_options.Testbed = None,
    site: Site = None,
    assume_shared: cluster_options.AssumeShared = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder of the study (default: studies/NAME-KIND)."
        ),
    ] = None,
    replicas: layout_options.Replicas = None,
    shards: layout_options.Shards = None,
    tensor: layout_options.Tensor = None,
    pipeline: layout_options.Pipeline = None,
    micro_batch: layout_options.MicroBatch = None,
    precision: layout_options.Precision = None,
    recompute: layout_options.Recompute = None,
    schedule: layout_options.Schedule = None,
    sequence: layout_options.Sequence = None,
    batch_norm: layout_options.BatchNorm = None,
    bucket_megabytes: layout_options.BucketMegabytes = None,
    sync: layout_options.SyncMode = None,
    faults: layout_options.FaultSettings = None,
    ledger: KeepLedger = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how a training scales and what limits it, or whether it learns as well.

    Example:  paceline study train.py --nodes 1,2,4,8 --kind strong

    Quality:  paceline study train.py --nodes 1,4 --kind quality --seeds 5

    Batch:    paceline study train.py --workers 1 --kind batch --seeds 5

    Repeat the command to continue an interrupted study.
    """
    from paceline.cli.options.number_list import number_list
    from paceline.launch.target import Target
    from paceline.schedulers.quantities import minutes_of
    from paceline.study.request import ClusterRequest, StudyRequest
    from paceline.study.result import result
    from paceline.study.runner import measure

    _check_where(workers, nodes, devices or testbed)
    silent = quiet or json
    place = None
    if nodes is not None:
        chosen = cluster_options.chosen_scheduler(scheduler, testbed, quiet=silent)
        minutes = minutes_of(time) if time else None
        allocation = allocation_options.given_allocation(context)
        place = ClusterRequest(chosen, testbed, partition, allocation, minutes, assume_shared)
    else:
        allocation_options.refuse_on_this_machine(
            context, fix="leave it out, or write --nodes in place of --workers"
        )
    request = StudyRequest(
        target=Target.parse(train, script_arguments(context)),
        kind=kind,
        nodes=number_list("--nodes", nodes) if nodes else [1],
        devices=number_list("--devices", devices or "1")
        if nodes
        else number_list("--workers", workers or "1"),
        cluster=place,
        layout=layout_options.given_layout(context),
        layout_options=layout_options.LAYOUT_OPTIONS,
        vary=vary or [],
        repeat=repeat,
        steps=steps,
        warm_up=warm_up,
        margin=margin,
        begin_at=begin_at,
        ledger=ledger,
        at_once=at_once,
        cluster_file=cluster,
        out=out,
        warn=lambda text: say(f"warning: {text}", unless=silent),
    )
    folder, launcher = request.begin()
    say(f"study: {short_path(folder.path)}", unless=silent)
    with _progress_shown(show=not silent) as show_progress:
        try:
            done = measure(folder, launcher, at_once, show_progress)
        except KeyboardInterrupt:
            launcher.interrupt()
            say("interrupted; repeat the command to continue")
            raise typer.Exit(130) from None
    found = result(folder)
    _conclude(found, folder.path, json=json, quiet=quiet)
    if done.failed:
        raise typer.Exit(1)


def _check_where(workers: str | None, nodes: str | None, with_nodes: str | None) -> None:
    """Refuse a study on neither or both of this machine and a cluster."""
    from paceline.specs import PacelineError

    if (workers is None) == (nodes is None):
        raise PacelineError(
            "a study needs --workers (this machine) or --nodes (of a cluster);"
            f" {'neither was' if workers is None else 'both were'} given",
            fix="write `paceline study train.py --workers 1,2` or `--nodes 1,2,4,8`",
        )
    if workers is not None and with_nodes is not None:
        raise PacelineError(
            "--devices and --testbed need --nodes, but --workers was given",
            fix="leave them out, or write --nodes in place of --workers",
        )


@contextmanager
def _progress_shown(*, show: bool) -> "Iterator[Callable[[Progress], None]]":
    """Show a progress bar of the runs; without a terminal, print a line for each."""
    from paceline.observe.progress_bar import progress_bar

    with progress_bar("runs", show=show) as advance:
        said: set[str] = set()

        def show_progress(now: "Progress") -> None:
            advance((now.done + len(now.failed)) / max(1, now.wanted))
            for name in now.going:
                if name not in said:
                    said.add(name)
                    say(
                        f"run {now.done + len(now.failed) + 1} of {now.wanted}: {name}",
                        unless=not show,
                    )

        yield show_progress


def _conclude(found: "StudyResult", folder: Path, *, json: bool, quiet: bool) -> None:
    from paceline.report.formats import study_report, write
    from paceline.specs import PacelineError
    from paceline.specs.owned_files import open_owned

    if json:
        print_json(found.model_dump(mode="json"), "study")
    if not (json or quiet):
        from paceline.cli.tables.study_table import show

        show(found)
    page = folder / "report.html"
    try:
        open_owned(page, "a").close()  # of the study's folder, whatever the umask
        write(study_report(found), "html", page)
    except PacelineError as error:  # the plotting packages are optional
        say(f"no page: {error.problem}", unless=quiet)
        return
    say(f"report: {short_path(page)}", unless=quiet or json)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(study)
