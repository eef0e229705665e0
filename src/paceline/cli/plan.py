"""`paceline plan`: choose a layout and a number of nodes, predict the cost and give reasons."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.console import Json, Quiet, print_json, say, waiting
from paceline.cli.options.allocation_options import Account
from paceline.cli.options.cluster_options import Partition, SchedulerName, Testbed
from paceline.cli.options.length_options import (
    Batch,
    CriticalBatchSize,
    Steps,
    Tokens,
    batches_of,
)
from paceline.cli.options.output_file import check_output, writing
from paceline.cli.options.price_options import Price, given_prices
from paceline.cli.options.queue_options import Queue, read_queue
from paceline.cli.options.site_defaults import Site
from paceline.cli.options.train_command import TrainCommand, script_arguments
from paceline.comm.torch_loading import loading

if TYPE_CHECKING:
    from paceline.launch.target import Target
    from paceline.plan.planner import FinishedRun
    from paceline.specs import CriticalBatch, Learning

MODEL, WHERE = "Model", "Cluster"
PICTURE = ".svg"
CHOICE, RESULT = "Goal and limits", "Prediction and output"


def plan(
    context: typer.Context,
    train: Annotated[
        str | None,
        typer.Argument(metavar="TRAIN", help="train.py or train.py:function; or give --model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="TEXT",
            help='A model by its dimensions, "gpt: layers=96 width=12288 heads=96 seq=2k'
            ' vocab=51200", or by its name, llama3-8b.',
            rich_help_panel=MODEL,
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Times measured by `paceline probe TRAIN` (default: profile.toml if it fits).",
            rich_help_panel=MODEL,
        ),
    ] = None,
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp8"] | None,
        typer.Option(
            "--precision",
            help="Consider this precision only (default: a 16-bit one and fp32); fp8 with --engine"
            " megatron or torchtitan.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--count",
            help="Time the training here if this machine has the cluster's device, or only count"
            " its operations.",
            rich_help_panel=MODEL,
        ),
    ] = True,
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="FILE",
            help="Cluster measured by `paceline probe` (default: cluster.toml).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="A device of the catalog with its usual links, in place of --cluster.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="N[,N…]",
            help="Numbers of nodes to consider (default: powers of two and all).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    queue: Queue = False,
    partition: Partition = None,
    account: Account = None,
    scheduler: SchedulerName = None,
    testbed: Testbed = None,
    batch: Batch = None,
    critical_batch: CriticalBatchSize = None,
    steps: Steps = None,
    tokens: Tokens = None,
    goal: Annotated[
        Literal["fastest", "cheapest", "greenest", "knee"],
        typer.Option(
            "--goal",
            help="Choose the number of nodes by this; knee: as many as are worth it.",
            rich_help_panel=CHOICE,
        ),
    ] = "knee",
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            help="Longest training time: minutes, H:MM:SS or D-HH (default: none).",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0,
            help="Highest cost of the training, in the price's currency (default: none).",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(
            "--time",
            "-t",
            help="Time limit of one job: minutes, H:MM:SS or D-HH (default: none).",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Training engine to plan for: paceline, megatron, deepspeed, torchtitan or fsdp;"
            " for others than paceline, the plan is their own settings.",
            rich_help_panel=CHOICE,
        ),
    ] = "paceline",
    sync: Annotated[
        str | None,
        typer.Option(
            "--sync",
            metavar="MODE[:key=value,…]",
            help="Synchronization mode, such as diloco:every=20 (default: the planner chooses).",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    price: Price = None,
    site: Site = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="FILE,FILE[,…]",
            help="Compare the cost at these sites; [options.plan] of each file names its cluster.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(
            "--calibrate",
            metavar="RUN",
            help="Fit the prediction to this run's step times, and take its critical batch"
            " (repeatable).",
            rich_help_panel=RESULT,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show how the estimate is computed.", rich_help_panel=RESULT
        ),
    ] = False,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The plan to write.", rich_help_panel=RESULT
        ),
    ] = Path("plan.toml"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose a layout and a number of nodes, and predict time, memory, energy and cost.

    Example:  paceline plan train.py --cluster cluster.toml
    """
    with loading():
        from paceline.cli.compared_sites import compare_sites, refuse_beside_compare
        from paceline.cli.options.number_list import large_number, number_list
        from paceline.cli.tables.learning_table import in_words
        from paceline.cli.tables.plan_picture import scaling_picture
        from paceline.cli.tables.plan_table import show, show_arithmetic
        from paceline.launch.target import Target
        from paceline.observe.progress_bar import progress_bar
        from paceline.plan.answer import plan_of
        from paceline.plan.inputs import DEFAULT_CLUSTER, PlanRequest
        from paceline.plan.planner import FinishedRun, make_plan

    del queue, partition, account, scheduler, testbed  # read_queue reads them
    check_output(output, beside=PICTURE)
    if compare is not None:
        refuse_beside_compare(context)
    target = None if train is None else Target.parse(train, script_arguments(context))
    given = _critical_batch(critical_batch)
    runs: list[FinishedRun] = []
    if calibrate or target:
        runs, measured = _measured(calibrate or [], target, cluster or DEFAULT_CLUSTER)
        if given is None and measured is not None:
            given = measured.critical_batch
            say(in_words(measured), unless=json or quiet)
    request = PlanRequest(
        train=target,
        model=model,
        profile=profile,
        cluster=cluster,
        device=device,
        nodes=None if nodes is None else tuple(number_list("--nodes", nodes)),
        batch=batches_of(batch),
        critical_batch=given,
        steps=steps,
        tokens=None if tokens is None else large_number("--tokens", tokens),
        goal=goal,
        deadline_seconds=_seconds(deadline),
        budget=budget,
        slot_seconds=_seconds(slot),
        precision=precision,
        sync=sync,
        engine=engine,
        prices=given_prices(context),
        queue=read_queue(context, quiet=json or quiet),
        measure=measure,
    )
    if compare is not None:
        compare_sites(request, compare, json=json, quiet=quiet)
        return
    told = json or quiet or sys.stderr.isatty()  # the bar says it on a terminal
    with (
        waiting("the profile and the search", unless=told),
        progress_bar("profile", show=not (json or quiet)) as advance,
    ):
        planned = make_plan(request, runs, advance)
    for note in planned.notes:
        say(note, unless=json or quiet)
    picture = output.with_suffix(PICTURE)
    settings = planned.answer.engine_settings
    output = output.with_suffix(f".{engine}.txt") if settings else output
    with writing(output):
        output.write_text(f"{settings}\n" if settings else plan_of(planned.answer).to_toml())
        picture.write_text(scaling_picture(planned.answer))
    if json:
        print_json(planned.answer.model_dump(mode="json"), "plan")
        return
    if not quiet:
        show(planned.answer)
        if explain:
            show_arithmetic(planned.best, planned.fit)
    say(f"plan: {output}   picture: {picture}", unless=quiet)
    if train is not None and not settings:
        say(f"next: paceline submit {train} --plan {output}", unless=quiet)


def _critical_batch(samples: float | None) -> "CriticalBatch | None":
    from paceline.specs import CriticalBatch, PacelineError

    if samples is None:
        return None
    if not math.isfinite(samples):
        raise PacelineError(
            f"--critical-batch {samples} is not a number of samples", fix="give a number, or none"
        )
    return CriticalBatch.exactly(samples)


def _seconds(text: str | None) -> float | None:
    from paceline.schedulers.quantities import minutes_of

    minutes = minutes_of(text) if text else None
    return None if minutes is None else 60.0 * minutes


def _measured(
    calibrate: list[Path], target: "Target | None", cluster: Path
) -> "tuple[list[FinishedRun], Learning | None]":
    """Return the runs to calibrate with, and what was measured of the training's batch."""
    from paceline.jobs.calibration import finished_run, measured_learning, read_runs

    runs = read_runs(calibrate)
    learning = None if target is None else measured_learning(target, runs, cluster)
    return [finished_run(each) for each in runs], learning


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=TrainCommand)(plan)
