"""Options of the length of a training and of its batch."""

from typing import Annotated, Literal

import typer

LENGTH = "Training length and batch"

Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="N[,N…]|best",
        help="Global batches to consider, in samples per step over all workers: several, or best,"
        " are compared to the same loss (default: the training's).",
        rich_help_panel=LENGTH,
    ),
]
CriticalBatchSize = Annotated[
    float | None,
    typer.Option(
        "--critical-batch",
        min=1,
        help="Critical batch size in samples: the training needs twice the samples there"
        " (default: that of --calibrate, or of learning.toml if it fits).",
        rich_help_panel=LENGTH,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        help="Steps to train for (default: the training's).",
        rich_help_panel=LENGTH,
    ),
]
Tokens = Annotated[
    str | None,
    typer.Option(
        "--tokens",
        metavar="N",
        help="Tokens to train on instead of --steps, such as 20M, 300B or 15T, for models with a"
        " sequence.",
        rich_help_panel=LENGTH,
    ),
]


def batches_of(text: str | None) -> tuple[int, ...] | Literal["best"] | None:
    """Return the value of `--batch`."""
    from paceline.cli.options.number_list import number_list

    if text is None:
        return None
    if text == "best":
        return "best"
    return tuple(number_list("--batch", text))
