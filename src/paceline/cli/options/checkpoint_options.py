"""Checkpoint options, shared by `run`, `submit` and `study`."""

from typing import Annotated, Any

import typer

_PANEL = "Checkpoints"

SaveEvery = Annotated[
    int | None,
    typer.Option(
        "--save-every",
        min=0,
        metavar="STEPS",
        rich_help_panel=_PANEL,
        help="Steps between checkpoints (default: every ten minutes; 0: none).",
    ),
]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="PLACE",
        rich_help_panel=_PANEL,
        help="Where to store checkpoints: a shared directory or s3://bucket/path (default: the run"
        " folder).",
    ),
]
KeepLedger = Annotated[
    bool,
    typer.Option(
        "--ledger", rich_help_panel=_PANEL, help="Record which samples entered each step."
    ),
]


def given_saving(
    save_every: int | None, checkpoints: str | None, *, ledger: bool
) -> dict[str, Any]:
    """Return the fields of a plan's checkpoint settings that these options set."""
    from pathlib import Path

    given: dict[str, Any] = {}
    if save_every is not None:
        given["every_steps"] = save_every
    if checkpoints is not None:
        given["folder"] = checkpoints if "://" in checkpoints else str(Path(checkpoints).absolute())
    if ledger:
        given["ledger"] = True
    return given
