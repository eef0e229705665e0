"""Layout options, shared by `run`, `submit`, `resume` and `study`, and the resulting plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from paceline.specs import Layout, Plan

PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Plan file to follow (TOML).")
]


_PANEL = "Layout"

Replicas = Annotated[
    int | None,
    typer.Option(
        "--replicas",
        min=1,
        help="Number of model replicas (default: as many as the workers allow).",
        rich_help_panel=_PANEL,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=1,
        help="Number of FSDP shards per replica (default: 1).",
        rich_help_panel=_PANEL,
    ),
]
Tensor = Annotated[
    int | None,
    typer.Option(
        "--tensor",
        min=1,
        help="Number of tensor-parallel slices per layer (default: 1).",
        rich_help_panel=_PANEL,
    ),
]
Pipeline = Annotated[
    int | None,
    typer.Option(
        "--pipeline", min=1, help="Number of pipeline stages (default: 1).", rich_help_panel=_PANEL
    ),
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        "--micro-batch",
        min=1,
        help="Maximum samples per forward pass (default: the local batch).",
        rich_help_panel=_PANEL,
    ),
]
Precision = Annotated[
    Literal["fp32", "bf16", "fp16"] | None,
    typer.Option(
        "--precision", help="Precision of matrix products (default: fp32).", rich_help_panel=_PANEL
    ),
]
Recompute = Annotated[
    Literal["none", "selective", "block"] | None,
    typer.Option(
        "--recompute",
        help="Activations that backward recomputes to save memory (default: none).",
        rich_help_panel=_PANEL,
    ),
]
Schedule = Annotated[
    Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] | None,
    typer.Option(
        "--schedule",
        help="Pipeline schedule of the micro-batches (default: 1f1b).",
        rich_help_panel=_PANEL,
    ),
]
Sequence = Annotated[
    bool | None,
    typer.Option(
        "--sequence/--no-sequence",
        help="With --tensor: sequence parallelism between the slices.",
        rich_help_panel=_PANEL,
    ),
]
BatchNorm = Annotated[
    Literal["local", "synchronised"] | None,
    typer.Option(
        "--batch-norm",
        help="Batch norm statistics: each worker's own, or of the whole batch.",
        rich_help_panel=_PANEL,
    ),
]
BucketMegabytes = Annotated[
    int | None,
    typer.Option(
        "--bucket-megabytes",
        min=1,
        help="Size of a gradient all-reduce bucket, in MB (default: 25).",
        rich_help_panel=_PANEL,
    ),
]
SyncMode = Annotated[
    str | None,
    typer.Option(
        "--sync",
        metavar="MODE[:key=value,…]",
        help="Synchronization mode, such as diloco:every=20,compress=int8 (default: allreduce).",
        rich_help_panel=_PANEL,
    ),
]
FaultSettings = Annotated[
    str | None,
    typer.Option(
        "--faults",
        metavar="key=value,…",
        help="Fault tolerance settings, such as copy_every=20,lease_seconds=1.",
        rich_help_panel=_PANEL,
    ),
]

LAYOUT_OPTIONS = (
    "replicas",
    "shards",
    "tensor",
    "pipeline",
    "micro_batch",
    "precision",
    "recompute",
    "schedule",
    "sequence",
    "batch_norm",
    "bucket_megabytes",
    "sync",
    "faults",
)
"""Parameters that `given_layout` collects; each command declares them under these names."""


def given_layout(context: typer.Context) -> dict[str, Any]:
    """Return the layout options that the user gave, by name."""
    values = {name: context.params[name] for name in LAYOUT_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def chosen_plan(
    file: Path | None,
    workers: int | None,
    default_workers: int,
    given: dict[str, Any],
    saving: dict[str, Any] | None = None,
) -> "Plan":
    """Return the file's plan, changed by the options, for a number of workers.

    If the number of replicas is not given, it is as large as the workers allow. Raise if the
    numbers contradict each other.
    """
    from paceline.specs import Plan

    plan = Plan.read(file) if file else Plan()
    plan = plan.model_copy(update={"saving": plan.saving.model_copy(update=saving or {})})
    plan, given = _with_the_rest(plan, given)
    layout = plan.layout.model_copy(update=given)
    wanted = None
    if "replicas" not in plan.layout.model_fields_set | given.keys():
        wanted = workers or (default_workers if not given and file is None else layout.workers)
    layout = _fitted(layout, workers, wanted, whose=str(file or "the layout"))
    return _with_layout(plan, layout)


def another_layout(plan: "Plan", workers: int | None, given: dict[str, Any]) -> "Plan":
    """Return the plan of a resumed run, changed by the options, for a number of workers."""
    plan, given = _with_the_rest(plan, given)
    layout, wanted = plan.layout.model_copy(update=given), None
    if "replicas" not in given and (workers is not None or given):
        layout, wanted = layout.model_copy(update={"replicas": 1}), workers or plan.layout.workers
    more = "; a checkpoint fits any layout"
    layout = _fitted(layout, workers, wanted, whose="the layout", more=more)
    if layout.workers != plan.layout.workers and layout.speeds is not None:
        layout = layout.model_copy(update={"speeds": None})
    return _with_layout(plan, layout)


def _with_the_rest(plan: "Plan", given: dict[str, Any]) -> "tuple[Plan, dict[str, Any]]":
    """Return the plan with the given `sync` and `faults`, and the remaining layout options."""
    from paceline.specs import SyncSettings

    layout = {name: value for name, value in given.items() if name not in ("sync", "faults")}
    if "faults" in given:
        plan = plan.model_copy(update={"faults": plan.faults.changed(given["faults"])})
    if "sync" in given:
        others = {"estimate": None, "rejected": ()}
        plan = plan.model_copy(update={"sync": SyncSettings.parse(given["sync"]), **others})
    return plan, layout


def _with_layout(plan: "Plan", layout: "Layout") -> "Plan":
    """Return the plan with a layout; drop predictions for the old layout."""
    plan.sync.check(layout)
    sync, estimate = plan.sync.for_replicas(layout.replicas), plan.estimate
    if sync != plan.sync:
        estimate = estimate and estimate.model_copy(update={"sync": sync})
        plan = plan.model_copy(update={"sync": sync, "estimate": estimate})
    if layout == plan.layout:
        return plan
    others = {"estimate": None, "rejected": (), "nodes": None, "devices_per_node": None}
    return plan.model_copy(update={"layout": layout, **others})


def _fitted(
    layout: "Layout", workers: int | None, wanted: int | None, *, whose: str, more: str = ""
) -> "Layout":
    """Return the layout with as many replicas as fit on `wanted` workers, or unchanged if None.

    Raise if it does not have `workers` workers.
    """
    from paceline.specs import PacelineError

    others = [name for name in ("shards", "tensor", "pipeline") if getattr(layout, name) > 1]
    degrees = " x ".join(f"{getattr(layout, name)} {name}" for name in ("replicas", *others))
    if wanted is not None:
        replicas, left = divmod(wanted, layout.workers)
        if left:
            raise PacelineError(
                f"{wanted} workers cannot be divided into copies of {layout.workers} ({degrees})",
                fix=f"use a multiple of {layout.workers} workers, or other numbers of these{more}",
            )
        layout = layout.model_copy(update={"replicas": replicas})
    if workers is not None and workers != layout.workers:
        raise PacelineError(
            f"{workers} workers were asked for, but {whose} plans {layout.workers}: {degrees}",
            fix="make them agree, or leave one of them out",
        )
    layout.check()
    return layout
