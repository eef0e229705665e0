"""The `paceline` command."""

import errno
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paceline import __version__
from paceline.cli import (
    check,
    doctor,
    plan,
    probe,
    resume,
    run,
    study,
    submit,
    testbed,
    trace,
    watch_report,
)
from paceline.cli.console import print_json, say

if TYPE_CHECKING:
    from paceline.specs import PacelineError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

app = typer.Typer(
    name="paceline",
    help="Take a PyTorch model that trains on one device to a cluster.",
    epilog="Begin with `paceline doctor`, then `paceline run train.py`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
doctor.add_to(app)
probe.add_to(app)
plan.add_to(app)
check.add_to(app)
run.add_to(app)
submit.add_to(app)
resume.add_to(app)
study.add_to(app)
watch_report.add_to(app)
trace.add_to(app)
testbed.add_to(app)


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; print a user's mistake or a full disk as a message, and exit."""
    try:
        app()
    except Exception as error:
        known = _to_tell(error)
        if known is None:
            raise
        say(f"error: {known}")
        if "--json" in sys.argv:
            print_json({"error": known.problem, "fix": known.fix})
        sys.exit(known.exit_code)


def _to_tell(error: Exception) -> "PacelineError | None":
    """Return the error if a message says all of it; None for a mistake in Paceline."""
    from paceline.specs import PacelineError  # imported here so that --help stays fast

    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return PacelineError(
            f"{error.filename or 'a file'} cannot be written: {error.strerror}",
            fix="make room there (`df -h`, `quota -s`), or choose another folder, then try again",
        )
    return error if isinstance(error, PacelineError) else None
