"""What the commands share: common options, and how they speak to people and to machines."""

import json
import sys
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Train = Annotated[
    str, typer.Argument(metavar="TRAIN", help="train.py, or train.py:function (default: training).")
]
Runs = Annotated[str, typer.Option("--runs", metavar="DIR", help="Parent of the run's folder.")]
RunName = Annotated[str | None, typer.Option("--name", help="Name of the run.")]
Port = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, help="Where workers meet (any free port)."),
]
PowerLimit = Annotated[
    float | None,
    typer.Option("--power-limit", min=1, metavar="WATTS", help="Of each GPU, while it trains."),
]
TraceSteps = Annotated[
    int | None,
    typer.Option(
        "--trace", min=1, metavar="STEPS", help="Record what workers do in so many steps."
    ),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="LISTENER[:PLACE]",
        help="Tell prometheus, tensorboard, mlflow or wandb of the run; repeatable.",
    ),
]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="The run's folder.")]


def say(text: str, *, unless: bool = False) -> None:
    """One line for a person, on standard error, so that standard output stays for results."""
    if not unless:
        print(text, file=sys.stderr)


def warn(text: str, *, unless: bool = False) -> None:
    """Print a warning, as `say` does."""
    say(f"warning: {text}", unless=unless)


def print_json(value: Any) -> None:
    """One JSON object on standard output; what is not finite becomes null."""
    print(json.dumps(_finite(value), indent=2))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
