"""The layout's options, which `run` and `submit` share, and the plan that they make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from paceline.specs import Plan

PlanFile = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="The plan to follow (TOML).")
]
Replicas = Annotated[int | None, typer.Option("--replicas", min=1, help="Copies of the model.")]
Shards = Annotated[
    int | None, typer.Option("--shards", min=1, help="Workers that share a copy (FSDP).")
]
MicroBatch = Annotated[
    int | None, typer.Option("--micro-batch", min=1, help="Samples per forward at the most.")
]
Precision = Annotated[
    Literal["fp32", "bf16", "fp16"] | None,
    typer.Option("--precision", help="What matrix products are computed in."),
]
Recompute = Annotated[
    Literal["none", "selective", "block"] | None,
    typer.Option("--recompute", help="What backward computes again to save memory."),
]


def chosen_plan(
    file: Path | None, workers: int | None, default_workers: int, **options: Any
) -> "Plan":
    """The plan of a file with what the options change, for a number of workers.

    Replicas that nobody gave are as many as the workers allow; all numbers must agree.
    """
    from paceline.specs import PacelineError, Plan

    plan = Plan.read(file) if file else Plan()
    given = {name: value for name, value in options.items() if value is not None}
    layout = plan.layout.model_copy(update=given)
    if "replicas" not in plan.layout.model_fields_set | given.keys():
        wanted = workers or (default_workers if not given and file is None else layout.workers)
        replicas, left = divmod(wanted, layout.workers)
        if left:
            raise PacelineError(
                f"{wanted} workers cannot be divided into copies of {layout.workers} (shards)",
                fix=f"use a multiple of {layout.workers} workers, or other --shards",
            )
        layout = layout.model_copy(update={"replicas": replicas})
    if workers is not None and workers != layout.workers:
        raise PacelineError(
            f"{workers} workers were asked for, but {file or 'the layout'} plans"
            f" {layout.workers}: {layout.replicas} replicas x {layout.shards} shards",
            fix="make them agree, or leave one of them out",
        )
    return plan.model_copy(update={"layout": layout})
