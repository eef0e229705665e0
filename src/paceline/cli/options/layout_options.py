"""Layout options, shared by `run`, `submit`, `resume` and `study`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

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
    Literal["local", "synchronized"] | None,
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
