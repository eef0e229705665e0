"""The layout's options, which `run` and `submit` share, and the plan that they make."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from paceline.specs import Layout, Plan

PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="The plan to follow (TOML).")
]


def _count(name: str, help_text: str) -> Any:
    option = typer.Option(f"--{name}", min=1, help=help_text)
    return Annotated[int | None, option]


def _choice(name: str, kind: Any, help_text: str) -> Any:
    return Annotated[kind | None, typer.Option(name, help=help_text)]


LAYOUT_OPTIONS: dict[str, Any] = {
    "replicas": _count("replicas", "Copies of the model, each on its part of the batch."),
    "shards": _count("shards", "Workers that share the weights of a copy (FSDP)."),
    "tensor": _count("tensor", "Workers that compute each layer together, in slices."),
    "pipeline": _count("pipeline", "Workers that hold the blocks behind each other."),
    "micro_batch": _count("micro-batch", "Samples per forward at the most."),
    "precision": _choice(
        "--precision", Literal["fp32", "bf16", "fp16"], "What matrix products are computed in."
    ),
    "recompute": _choice(
        "--recompute",
        Literal["none", "selective", "block"],
        "What backward computes again to save memory.",
    ),
    "schedule": _choice(
        "--schedule",
        Literal["gpipe", "1f1b", "interleaved", "zero-bubble"],
        "How micro-batches pass a pipeline.",
    ),
    "sequence": _choice(
        "--sequence/--no-sequence", bool, "With --tensor: divide along the sequence in between."
    ),
    "batch_norm": _choice(
        "--batch-norm",
        Literal["local", "synchronised"],
        "Statistics of batch normalisation: each worker's own, or of the whole batch.",
    ),
    "bucket_megabytes": _count(
        "bucket-megabytes", "Gradients that replicas exchange together, during backward."
    ),
    "sync": Annotated[
        str | None,
        typer.Option(
            "--sync",
            metavar="MODE[:key=value,…]",
            help="How replicas agree, such as diloco:every=20,compress=int8.",
        ),
    ],
    "faults": Annotated[
        str | None,
        typer.Option(
            "--faults",
            metavar="key=value,…",
            help="What happens when workers fail, such as copy_every=20,lease_seconds=1.",
        ),
    ],
}
"""Each field of a layout that has an option, what else a plan has, and how typer reads it."""


def takes_layout(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the layout's options; it gets those that were set as one mapping, `layout`."""
    signature = inspect.signature(command)
    own = [each for name, each in signature.parameters.items() if name != "layout"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in LAYOUT_OPTIONS.items()
    ]

    @functools.wraps(command)
    def with_layout(**words: Any) -> None:
        given = {name: words.pop(name) for name in LAYOUT_OPTIONS}
        command(**words, layout={name: value for name, value in given.items() if value is not None})

    with_layout.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + options
    )
    return with_layout


def chosen_plan(
    file: Path | None,
    workers: int | None,
    default_workers: int,
    given: dict[str, Any],
    saving: dict[str, Any] | None = None,
) -> "Plan":
    """The plan of a file with what the options change, for a number of workers.

    Replicas that nobody gave are as many as the workers allow; all numbers must agree.
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
    """The plan of a run that goes on, with what the options change, for a number of workers."""
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
    """The plan with what was given beside the layout, if anything, and what was of the layout."""
    from paceline.specs import Sync

    layout = {name: value for name, value in given.items() if name not in ("sync", "faults")}
    if "faults" in given:
        plan = plan.model_copy(update={"faults": plan.faults.changed(given["faults"])})
    if "sync" in given:
        others = {"estimate": None, "rejected": ()}
        plan = plan.model_copy(update={"sync": Sync.parse(given["sync"]), **others})
    return plan, layout


def _with_layout(plan: "Plan", layout: "Layout") -> "Plan":
    """The plan with a layout; what was said of another one no longer holds."""
    plan.sync.check(layout)
    sync, estimate = plan.sync.among(layout.replicas), plan.estimate
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
    """A layout of one copy with as many of them as `wanted` workers hold, or as it is; it must have
    as many workers as were asked for."""
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
