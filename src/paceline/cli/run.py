"""`paceline run`: train on the devices of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
)
from paceline.cli.options.checkpoints import Checkpoints, KeepLedger, SaveEvery, given_saving
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

if TYPE_CHECKING:
    from paceline.launch.supervisor import LocalLaunch
    from paceline.launch.target import Target
    from paceline.report import RunState
    from paceline.specs import Run


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
        int, typer.Option("--spares", min=0, help="Number of spare workers that replace lost ones.")
    ] = 0,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            "-t",
            help="Time limit, after which the run saves and stops: minutes, H:MM:SS or D-HH.",
        ),
    ] = None,
    runs: Runs = "runs",
    name: RunName = None,
    port: Port = None,
    power_limit: PowerLimit = None,
    to: To = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Train nothing; show each worker's memory and communication."
        ),
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=1, help="With --dry-run: number of nodes."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, help="With --dry-run: workers per node.")
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
    """
    import sys

    from paceline.cli.dry_run import dry_run as show_dry_run
    from paceline.cli.dry_run import refuse_cluster

    layout = given_layout(context)
    if dry_run:
        show_dry_run(
            train,
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

    from paceline.cli.options.listeners import given_listeners
    from paceline.launch import supervisor
    from paceline.launch.target import Target
    from paceline.schedulers.quantities import minutes_of
    from paceline.specs import Job, Limits, Run

    target = Target.parse(train)
    accelerators = supervisor.accelerators()
    saving = given_saving(save_every, checkpoints, ledger=ledger)
    chosen = chosen_plan(plan, workers, max(1, accelerators), layout, saving)
    warning = supervisor.check_room(chosen.layout.workers + spares, accelerators)
    if warning:
        say(warning, unless=quiet)
    job = Job(
        name=name or default_name(target),
        train=target.file,
        function=target.function,
        trace_steps=trace,
        devices_per_node=chosen.layout.workers,
        spares=spares,
        port=port,
        power_limit_watts=power_limit,
        limits=Limits(minutes=minutes_of(time) if time else None),
        folder=Path.cwd(),
        python=Path(sys.executable),
        listeners=given_listeners(to),
    )
    folder = Run.create(Path(runs), job, chosen)
    with supervisor.held(folder):
        train_here(folder, json=json, quiet=quiet)


def train_here(run: "Run", *, json: bool, quiet: bool) -> None:
    """Start a run's workers on this machine and wait for their end."""
    from functools import partial

    from paceline.launch import supervisor
    from paceline.launch.follower import following
    from paceline.observe.versions import write_versions

    launch = supervisor.LocalLaunch(run)
    with following(run, partial(say, unless=quiet)), _stopping_on_signals(launch) as stop_if_asked:
        write_versions(run.versions_file, run.job.train)  # while the workers load torch
        say(f"run: {shown(run.path)}", unless=quiet)

        def over() -> bool:
            stop_if_asked()
            return launch.poll() is not None

        if not (quiet or json):
            from rich.console import Console

            from paceline.report import watch

            watch(run, Console(stderr=True), until=over)
        while not over():
            launch.wait(0.2)
    conclude(run, json=json, quiet=quiet)


@contextmanager
def _stopping_on_signals(launch: "LocalLaunch") -> "Iterator[Callable[[], None]]":
    """Handle Ctrl-C and SIGTERM during the block: the first signal stops the workers after the
    current step, with their state saved; the second kills them. The yielded function does this.

    A handler, not an exception: one raised during garbage collection, for example, would be lost.
    The handler only counts, because it can interrupt the launcher anywhere.
    """
    import signal

    asked = done = 0

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        del number, frame
        asked += 1

    def act() -> None:
        nonlocal done
        if asked and not done:
            say("stopping at the end of this step; Ctrl-C again ends it at once")
            launch.stop()
        if asked > max(1, done):
            launch.kill()
        done = asked

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield act
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def default_name(target: "Target") -> str:
    """Return the run's default name: the file's, or its folder's for `train.py` and `main.py`."""
    stem = target.file.stem
    return target.file.parent.name if stem in ("train", "main") else stem


def shown(path: Path) -> str:
    """Return a path relative to the working directory if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def conclude(run: "Run", *, json: bool, quiet: bool) -> None:
    """Print how a run ended, and exit with its code."""
    from paceline.report import ReportedRun
    from paceline.report.run.sections.prediction import prediction_figures, prediction_sentence
    from paceline.specs import STOPPED_EXIT_CODE

    report = ReportedRun.read(run)
    state, result = report.state, report.summary
    if json:
        print_json(report.to_dict())
    refuse_failed(run, state)
    if not json:
        rate, loss = result.samples_per_second or 0.0, result.final_loss
        say(
            f"{result.status}: {result.steps} steps, {result.samples} samples in"
            f" {result.seconds:.1f} s ({rate:.0f} samples/s), final loss"
            f" {'-' if loss is None else format(loss, '.6g')}",
            unless=quiet,
        )
        prediction = prediction_figures(state)
        if prediction is not None:
            say(prediction_sentence(prediction), unless=quiet)
        next_word = "resume" if state.status == "stopped" else "report"
        say(f"next: paceline {next_word} {shown(run.path)}", unless=quiet)
    if state.status == "stopped":
        raise typer.Exit(STOPPED_EXIT_CODE)


def refuse_failed(run: "Run", state: "RunState") -> None:
    """Raise if a run failed, with its cause and the last log lines."""
    from paceline.report import cause
    from paceline.specs import RunFailed

    if state.status != "failed":
        return
    reason = cause(state, run)
    lines = [f"{reason.where} failed: {reason.message}" if reason else "the run failed"]
    if reason and "\n  -> " not in reason.message:
        lines += [f"  | {line}" for line in reason.log_lines]
    raise RunFailed("\n".join(lines), fix=f"the whole log is in {shown(run.logs)}")


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(run)
