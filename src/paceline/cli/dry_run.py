"""`paceline run --dry-run`: count each worker's memory and communication, without a cluster."""

import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.console import print_json
from paceline.cli.tables.table import console, table
from paceline.observe.progress_bar import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.launch.target import Target
    from paceline.specs import DryRun, Plan, RankDryRun


def dry_run(
    target: "Target",
    plan: Path | None,
    layout: dict[str, Any],
    *,
    workers: int | None,
    nodes: int | None,
    devices: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Run one step of every pipeline stage without data, and print its memory and communication."""
    from paceline.specs import PacelineError

    chosen = _plan_for(plan, layout, workers, nodes, devices)
    if not chosen.sync.by_engine:
        raise PacelineError(
            f"--dry-run was given together with --sync {chosen.sync.short()}: it shows what workers"
            " exchange when they agree in every step",
            fix="leave --sync out to see what a worker holds, which is the same but for the mode's"
            " own copies of the weights",
        )
    # Output of the user's code must not mix with the result.
    with redirect_stdout(sys.stderr), progress_bar("dry run", show=not (json or quiet)) as advance:
        from paceline.parallel.dry_run.dry_run import dry_run as take_step
        from paceline.user.script import training_of

        found = take_step(
            training_of(target.file, target.function, target.arguments),
            chosen.layout,
            devices_per_node=chosen.layout.workers // (nodes or 1),
            advance=advance,
        )
    if json:
        print_json(_as_json(found), "run.dry-run")
    else:
        _show(found)


def refuse_cluster(nodes: int | None, devices: int | None) -> None:
    """Refuse options that are for clusters only."""
    from paceline.specs import PacelineError

    for name, value in {"nodes": nodes, "devices": devices}.items():
        if value is not None:
            raise PacelineError(
                f"--{name} {value} was given, but `paceline run` trains on this machine only",
                fix=f"use `paceline submit TRAIN --{name} {value}` to train on a cluster, or add"
                " --dry-run to see what its workers would hold and send",
            )


def _plan_for(
    file: Path | None,
    layout: dict[str, Any],
    workers: int | None,
    nodes: int | None,
    devices: int | None,
) -> "Plan":
    from paceline.jobs.plan_choice import chosen_plan
    from paceline.specs import PacelineError

    if devices is not None:
        in_all = (nodes or 1) * devices
        if workers not in (None, in_all):
            raise PacelineError(
                f"-n {workers} was given, but --nodes {nodes or 1} with --devices {devices} are"
                f" {in_all} workers",
                fix="leave -n out, or make them agree",
            )
        workers = in_all
    plan = chosen_plan(file, workers, nodes or 1, layout)
    if plan.layout.workers % (nodes or 1):
        raise PacelineError(
            f"{plan.layout.workers} workers cannot be spread evenly over {nodes} nodes",
            fix="give --devices, too: the workers of each node",
        )
    return plan


def _as_json(found: "DryRun") -> dict[str, Any]:
    result = found.model_dump(mode="json")
    for picture, rank in zip(found.ranks, result["ranks"], strict=True):
        rank["bytes_inside_node"] = picture.transferred_bytes(inside_node=True)
        rank["bytes_between_nodes"] = picture.transferred_bytes(inside_node=False)
    return result


def _show(found: "DryRun") -> None:
    from paceline.specs.units import count, duration, size

    layout = found.layout
    degrees = " x ".join(
        f"{getattr(layout, name)} {name}"
        for name in ("pipeline", "replicas", "shards", "tensor")
        if getattr(layout, name) > 1
    )
    many = found.micro_batches > 1
    print(
        f"{found.parameters:,} parameters on {count(found.nodes, 'node')} with"
        f" {count(found.devices_per_node, 'device')} each: {degrees or 'one worker'}\n"
        f"A step has {found.batch:,} samples; a worker's share passes as {found.micro_batches}"
        f" micro-batch{'es' if many else ''} of {found.micro_batch_samples}, in {layout.precision}."
    )
    out = console()

    def show(title: str, table: "Table") -> None:
        out.print(f"\n[bold]{title}[/bold]", table)

    show("Held, at the most", _memory_table(found))
    for ranks in _alike(found.ranks, lambda rank: rank.transfers):
        show(f"Sent and received in a step by {_named(ranks)}", _transfer_table(ranks[0]))
    for ranks in _alike(found.ranks, lambda rank: rank.largest):
        show(f"The largest parameters as held by {_named(ranks)}", _parameter_table(ranks[0]))
    print(
        f"\nCounted in {duration(found.seconds)}, from {found.micro_batches_run}"
        f" micro-batch{'' if found.micro_batches_run == 1 else 'es'} on"
        f" {count(len(found.ranks), 'worker')}; the others look the same.\nNot counted: what"
        " kernels, the allocator and the communication library take for themselves."
    )
    if layout.workers > layout.replicas:
        print(f"Every worker builds the whole model first: {size(found.parameter_bytes)}.")


def _memory_table(found: "DryRun") -> "Table":
    from paceline.specs.units import size

    parts = ("parameters", "gradients", "optimizer", "activations", "communication", "peak")
    shown = table(
        *("worker", "node", "stage", "parameters"),
        *("weights" if part == "parameters" else part for part in parts),
        words=(),
    )
    for rank in found.ranks:
        held = [size(getattr(rank.memory, part)) for part in parts]
        shown.add_row(
            str(rank.rank), str(rank.node), str(rank.stage), f"{rank.parameters:,}", *held
        )
    return shown


def _transfer_table(rank: "RankDryRun") -> "Table":
    from paceline.specs.units import size

    columns = ("operation", "along", "among", "nodes", "each", "times", "together")
    shown = table(*columns, words={"operation", "along", "nodes"})
    for each in rank.transfers:
        shown.add_row(
            each.operation,
            each.dimension,
            f"{each.workers:,}",
            "one" if each.inside_node else "several",
            size(each.bytes),
            f"{each.count:,}",
            size(each.total_bytes),
        )
    shown.add_section()
    for inside in (True, False):
        alike = [each for each in rank.transfers if each.inside_node == inside]
        if alike:
            calls, together = sum(each.count for each in alike), rank.transferred_bytes(inside)
            nodes = "one" if inside else "several"
            shown.add_row("all", "", "", nodes, "", f"{calls:,}", size(together))
    return shown


def _parameter_table(rank: "RankDryRun") -> "Table":
    shown = table("name", "shape", "times", words={"name", "shape"})
    for each in rank.largest:
        shown.add_row(each.name, " x ".join(map(str, each.shape)), str(each.count))
    return shown


def _named(ranks: "list[RankDryRun]") -> str:
    if len(ranks) == 1:
        return f"worker {ranks[0].rank}"
    return f"workers {', '.join(str(each.rank) for each in ranks)}, each"


def _alike(
    ranks: "Iterable[RankDryRun]", by: "Callable[[RankDryRun], Any]"
) -> "list[list[RankDryRun]]":
    """Group workers whose values of `by` are equal."""
    found: dict[Any, list[RankDryRun]] = {}
    for rank in ranks:
        found.setdefault(by(rank), []).append(rank)
    return list(found.values())
