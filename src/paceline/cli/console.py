"""Options that all commands share, and functions that print messages and JSON."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.outputs.versions import full_name
from paceline.jobs.user_messages import Messages

if TYPE_CHECKING:
    from paceline.specs import PacelineError


def _refuse_url(directory: str) -> str:
    if "://" in directory:
        from paceline.specs import PacelineError

        raise PacelineError(
            f"--runs {directory} is a URL, but this command needs a directory",
            fix="give a directory; `paceline run` and `paceline submit` can use an object store",
        )
    return directory


PRINTED: list[str] = []
"""Forms of the JSON that the command has printed."""

_SILENT_SECONDS = 2.0
"""Longest time for which a command says nothing."""

JOB, OUTPUT = "Job", "Output"
"""Groups of options in `--help`."""

Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON object instead of text."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Print only errors.")
]
Train = Annotated[
    str, typer.Argument(metavar="TRAIN", help="train.py, or train.py:function (default: training).")
]
Runs = Annotated[
    str,
    typer.Option(
        "--runs",
        metavar="DIR|URL",
        rich_help_panel=JOB,
        help="Parent directory of the run folder, or its URL in an object store (s3://…).",
    ),
]
RunsDirectory = Annotated[
    str,
    typer.Option(
        "--runs",
        metavar="DIR",
        rich_help_panel=JOB,
        callback=_refuse_url,
        help="Parent directory of the run folder.",
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--name",
        rich_help_panel=JOB,
        help="Name of the run (default: from the file or its directory).",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65535,
        rich_help_panel=JOB,
        help="Port of the rendezvous (default: any free port).",
    ),
]
PowerLimit = Annotated[
    float | None,
    typer.Option(
        "--power-limit",
        min=1,
        metavar="WATTS",
        rich_help_panel=JOB,
        help="Cap each GPU's power, in watts, for the duration of the run.",
    ),
]
TraceSteps = Annotated[
    int | None,
    typer.Option(
        "--trace",
        min=1,
        metavar="STEPS",
        rich_help_panel=JOB,
        help="Profile this many steps on up to 16 workers (default: off).",
    ),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="LISTENER[:PLACE]",
        rich_help_panel=JOB,
        help="Forward metrics to prometheus, tensorboard, mlflow or wandb; repeatable.",
    ),
]
Share = Annotated[
    bool,
    typer.Option(
        "--share",
        rich_help_panel=JOB,
        help="Let your group read the run folder. By default, only you can read it.",
    ),
]
NoCheck = Annotated[
    bool,
    typer.Option(
        "--no-check",
        rich_help_panel=JOB,
        help="Start without checking that the training can be divided.",
    ),
]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="The run folder, or its URL.")]


def say(text: str, *, unless: bool = False) -> None:
    """Print a message on standard error; standard output is for results."""
    if not unless:
        print(text, file=sys.stderr)


def warn(text: str, *, unless: bool = False) -> None:
    """Print a warning, as `say` does."""
    say(f"warning: {text}", unless=unless)


@contextmanager
def waiting(what: str, *, unless: bool = False) -> Iterator[None]:
    """Say what the command waits for, if the block takes longer than two seconds."""
    timer = threading.Timer(_SILENT_SECONDS, say, [f"waiting for {what}"])
    timer.daemon, timer.name = True, "waiting"
    if not unless:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def messages(*, quiet: bool, live: bool = False) -> Messages:
    """Return the receivers that print a run's messages; `live` shows the run unless `quiet`."""
    return Messages(
        note=partial(say, unless=quiet),
        warn=partial(warn, unless=quiet),
        urgent=say,
        live=live and not quiet,
    )


def print_json(value: dict[str, Any], schema: str) -> None:
    """Print a result as JSON on standard output, with the name of its form (see `outputs`).

    Numbers that are not finite become null.
    """
    PRINTED.append(schema)
    print(json.dumps({"schema": full_name(schema), **_finite(value)}, indent=2))


def print_error(error: "PacelineError") -> None:
    """Print an error as JSON, unless the command has printed its result: one object at most."""
    if not PRINTED:
        found = {"error": error.problem, "fix": error.fix, "topic": error.topic}
        print_json(found, "error")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
