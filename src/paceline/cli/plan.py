"""`paceline plan`: which layout, on how many nodes, what it will take, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.console import Json, Quiet, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.plan.search.best_layout import Best
    from paceline.specs import Answer, Cluster

Precisions = Literal["fp32", "bf16", "fp16"]


def plan(
    train: Annotated[
        str | None,
        typer.Argument(metavar="TRAIN", help="train.py, or train.py:function; or give --model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="TEXT",
            help='A model by its dimensions, "gpt: layers=96 width=12288 heads=96 seq=2k'
            ' vocab=51200", or by its name, llama3-8b.',
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="FILE", help="Times of `paceline probe TRAIN`."),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="FILE", help="cluster.toml of `paceline probe`."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="A device of the catalogue.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="N[,N…]", help="Numbers of nodes to look at.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Samples of a step, over all workers.")
    ] = None,
    critical_batch: Annotated[
        float | None,
        typer.Option(
            "--critical-batch", min=1, help="At which learning takes twice the samples, if known."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train for.")] = None,
    goal: Annotated[
        Literal["fastest", "cheapest", "greenest", "knee"],
        typer.Option("--goal", help="What decides on the number of nodes."),
    ] = "knee",
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", help="Be done within: minutes, H:MM:SS or D-HH."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", min=0, help="Most money, in the price's currency.")
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option("--time", "-t", help="Time limit of a job: minutes, H:MM:SS or D-HH."),
    ] = None,
    precision: Annotated[
        Precisions | None, typer.Option("--precision", help="Look at this one only.")
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            "--sync",
            metavar="MODE[:key=value,…]",
            help="How replicas are to agree, such as diloco:every=20; chosen if not given.",
        ),
    ] = None,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(
            "--calibrate", metavar="RUN", help="Learn from this run's steps (repeatable)."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic of the estimate.")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure/--count", help="Time the model here if the cluster's devices are."),
    ] = True,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The plan to write.")
    ] = Path("plan.toml"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which layout to use on how many nodes, what it will take, and why.

    Example:  paceline plan train.py --cluster cluster.toml
    """
    from paceline.cli.plan_inputs import (
        DEFAULT_CLUSTER,
        Wish,
        asked_cluster,
        asked_counts,
        asked_model,
        asked_sync,
        check_given,
    )
    from paceline.cli.plan_runs import learned
    from paceline.cli.tables.plan_table import show, show_arithmetic
    from paceline.plan.answer import answer, plan_of

    asked = Wish(train, model, profile, batch, critical_batch, steps, precision, measure)
    check_given(asked)
    where = asked_cluster(cluster, device, nodes)
    counts = asked_counts(nodes, where)
    what = asked_model(asked, where, show=not (json or quiet))
    file = None if device else cluster or DEFAULT_CLUSTER
    found = learned(calibrate or [], where, file, quiet=json or quiet)
    limits = _limits(deadline, budget, what.steps, where)
    agreed = asked_sync(sync)
    said, best = answer(what.profiles, where, what.batch, counts, found, goal, limits, agreed)
    said = _with_training(said, best, where, what.steps, slot)
    plan_of(said).write(output)
    picture = _drawn(said, output.with_suffix(".svg"))
    if json:
        print_json(said.model_dump(mode="json"))
        return
    if not quiet:
        show(said)
        if explain:
            show_arithmetic(best, found)
    say(f"plan: {output}   {picture}", unless=quiet)
    if train is not None:
        say(f"next: paceline submit {train} --plan {output}", unless=quiet)


def _limits(
    deadline: str | None, budget: float | None, steps: int | None, cluster: "Cluster"
) -> "Callable[[Best], bool]":
    """Whether a training on some nodes keeps within what was given."""
    from paceline.plan.training_cost import training_cost
    from paceline.schedulers.slurm_client import minutes_of
    from paceline.specs import PacelineError

    minutes = minutes_of(deadline) if deadline else None
    given = f"--deadline {deadline}" if minutes is not None else f"--budget {budget}"
    if minutes is None and budget is None:
        return lambda best: True
    if steps is None:
        raise PacelineError(
            f"{given} was given, but not how long the training is", fix="add --steps N"
        )
    if budget is not None and cluster.device.price_per_hour is None:
        raise PacelineError(
            f"--budget {budget} was given, but not what the devices cost",
            fix="write price_per_hour, of one device, into [device] of the cluster's file",
        )

    def within(best: "Best") -> bool:
        there = cluster.model_copy(update={"nodes": best.nodes})
        cost = training_cost(best, there, steps)
        in_time = minutes is None or cost.seconds.value <= 60.0 * minutes
        return in_time and (budget is None or (cost.money or 0.0) <= budget)

    return within


def _with_training(
    said: "Answer", best: "Best", cluster: "Cluster", steps: int | None, slot: str | None
) -> "Answer":
    """With what the whole training takes, where its length is known."""
    from paceline.plan.training_cost import training_cost
    from paceline.schedulers.slurm_client import minutes_of

    if steps is None:
        return said
    there = cluster.model_copy(update={"nodes": best.nodes})
    minutes = minutes_of(slot) if slot else None
    cost = training_cost(best, there, steps, 60.0 * minutes if minutes else None)
    return said.model_copy(update={"training": cost})


def _drawn(said: "Answer", file: Path) -> str:
    """Draw the scaling curve; a plan is one without the packages that draw, too."""
    from paceline.report.studies.plan_curve import scaling_picture
    from paceline.specs import PacelineError

    try:
        file.write_text(scaling_picture(said))
    except PacelineError as error:
        return f"no picture: {error.problem}"
    return f"picture: {file}"


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(plan)
