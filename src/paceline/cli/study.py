"""`paceline study`: measure how a training scales, or compare the quality of its results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paceline.cli.console import Json, Quiet, Train, print_json, say
from paceline.cli.grouped_command import GroupedCommand
from paceline.cli.options import cluster_options, layout_options
from paceline.cli.options.study_checks import check_measuring, check_where
from paceline.jobs.user_messages import short_path

if TYPE_CHECKING:
    from paceline.launch.target import Target
    from paceline.schedulers.scheduler import Scheduler
    from paceline.specs import Kind, Plan, StudyResult
    from paceline.study.launchers import ClusterLauncher, RunSettings
    from paceline.study.runner import Progress

DEFAULT_PARENT = Path("studies")
DEFAULT_MARGIN = 0.01


def study(
    context: typer.Context,
    *,
    train: Train,
    workers: Annotated[
        str | None,
        typer.Option(
            "-n", "--workers", metavar="N[,N…]", help="Coefficients of workers on this machine."
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="N[,N…]", help="Coefficients of nodes of the cluster."),
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
        Literal["strong", "weak", "quality"],
        typer.Option(
            "--kind",
            help="strong: the same global batch on all; weak: the same local batch per worker;"
            " quality: compare what the model learned.",
        ),
    ] = "strong",
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=A,B",
            help="Also vary an option of `run`, the batch, a testbed's link, or for quality"
            " lr=naive,scaled (repeatable).",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat", "--seeds", min=1, help="Runs per point (default: 3; quality: 5 seeds)."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=2, help="Steps per run (default: 60; quality: all)."),
    ] = None,
    warm_up: Annotated[
        int, typer.Option("--warm-up", min=1, help="First steps to leave out of the measurement.")
    ] = 10,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            help="For quality: largest relative difference that counts as equal (default: 0.01).",
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
    scheduler: cluster_options.SchedulerName = None,
    testbed: cluster_options.Testbed = None,
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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how a training scales and what limits it, or whether it learns as well.

    Example:  paceline study train.py --nodes 1,2,4,8 --kind strong
              paceline study train.py --nodes 1,4 --kind quality --seeds 5

    Repeat the command to continue an interrupted study.
    """
    from paceline.cli.options.number_list import number_list
    from paceline.launch.target import Target
    from paceline.specs import PacelineError, Study
    from paceline.study.launchers import LocalLauncher
    from paceline.study.points import BATCH, LINK, RATE, check_rate, points, varied
    from paceline.study.result import result
    from paceline.study.runner import measure
    from paceline.study.study_folder import StudyFolder

    layout = layout_options.given_layout(context)
    target = Target.parse(train)
    check_where(workers, nodes, devices or testbed)
    learns = kind == "quality"
    check_measuring(kind, steps or 60, warm_up, margin)
    steps = steps or (0 if learns else 60)
    more = [*([RATE] if learns else []), *([LINK] if testbed else [])]
    keys = [*layout_options.LAYOUT_OPTIONS, BATCH, *more]
    varying = varied(vary or [], keys)
    if LINK in varying and at_once > 1:
        raise PacelineError(
            f"--at-once {at_once} was given, but --vary link changes the links for all runs",
            fix="leave --at-once out",
        )
    wanted_points = points(
        number_list("--nodes", nodes) if nodes else [1],
        number_list("--devices", devices or "1")
        if nodes
        else number_list("--workers", workers or "1"),
        kind,
        varying,
    )
    most = max(each.devices_per_node for each in wanted_points)
    settings = _settings(target, layout, kind, steps, most, cluster, quiet=quiet or json)
    launcher = (
        LocalLauncher(settings)
        if nodes is None
        else _on_cluster(
            settings,
            cluster_options.chosen_scheduler(scheduler, testbed, quiet=quiet or json),
            testbed,
            partition,
            time,
            assume_shared=assume_shared,
        )
    )
    for point in wanted_points:  # refuse invalid points before the first run
        check_rate(point, settings.plan(point).sync)
    name = target.run_name
    wanted = Study(
        name=name,
        train=target.file,
        function=target.function,
        kind=kind,
        points=wanted_points,
        repeat=repeat or (5 if learns else 3),
        steps=steps,
        warm_up=warm_up,
        margin=margin or DEFAULT_MARGIN,
        cluster=launcher.name,
    )
    folder = StudyFolder.begun(out or DEFAULT_PARENT / f"{name}-{kind}", wanted)
    say(f"study: {short_path(folder.path)}", unless=quiet or json)
    with _progress_shown(show=not (quiet or json)) as show_progress:
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


def _settings(
    target: "Target",
    layout: dict[str, Any],
    kind: "Kind",
    steps: int,
    most_devices: int,
    cluster: Path | None,
    *,
    quiet: bool,
) -> "RunSettings":
    from paceline.jobs.plan_choice import chosen_plan
    from paceline.study.launchers import RunSettings

    def choose_plan(workers: int, given: dict[str, Any]) -> "Plan":
        return chosen_plan(None, workers, workers, given, {"every_steps": 0})

    return RunSettings(
        target=target,
        layout=layout,
        choose_plan=choose_plan,
        kind=kind,
        steps=steps,
        most_devices=most_devices,
        cluster=cluster,
        warn=lambda text: say(f"warning: {text}", unless=quiet),
    )


def _on_cluster(
    settings: "RunSettings",
    scheduler: "Scheduler",
    testbed: str | None,
    partition: str | None,
    time: str | None,
    *,
    assume_shared: bool,
) -> "ClusterLauncher":
    from paceline.jobs.cluster_run import until_over
    from paceline.schedulers.quantities import minutes_of
    from paceline.study.launchers import ClusterLauncher
    from paceline.testbed import client

    def set_link(rate: str) -> None:
        assert testbed is not None
        for node in client.status(testbed).nodes:
            client.link(testbed, node.name, rate=rate)

    return ClusterLauncher(
        settings,
        scheduler,
        partition,
        minutes_of(time) if time else None,
        watch=until_over,
        set_link=None if testbed is None else set_link,
        assume_shared=assume_shared,
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
        print_json(found.model_dump(mode="json"))
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
    app.command(cls=GroupedCommand)(study)
