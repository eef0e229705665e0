"""The `paceline` command."""

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
from paceline.cli.console import PRINTED, print_error, say
from paceline.cli.help import command as help_command
from paceline.cli.help.zsh_completion import mend_zsh_completion
from paceline.cli.init import command as init_command
from paceline.cli.options.output_file import NO_ROOM

if TYPE_CHECKING:
    from paceline.specs import PacelineError

app = typer.Typer(
    name="paceline",
    help="Take a PyTorch model that trains on one device to a cluster.",
    epilog="Begin with `paceline init`, then `paceline run train.py`. Topics: `paceline help`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
init_command.add_to(app)
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
help_command.add_to(app)
mend_zsh_completion()


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
    PRINTED.clear()
    try:
        app()
    except SystemExit as ended:
        known = _refused(ended)
        if known is not None and "--json" in sys.argv:
            print_error(known)
        raise
    except Exception as error:
        known = _to_tell(error)
        if known is None:
            raise
        say(f"error: {known}\n{known.help_line}")
        if "--json" in sys.argv:
            print_error(known)
        sys.exit(known.exit_code)


def _refused(ended: SystemExit) -> "PacelineError | None":
    """Return the error of words that are no command or option, which typer has printed."""
    message = getattr(ended.__context__, "format_message", None)
    if message is None:
        return None
    from paceline.specs import PacelineError

    return PacelineError(
        message(), fix="`paceline COMMAND --help` lists a command's options", about="options"
    )


def _to_tell(error: Exception) -> "PacelineError | None":
    """Return the error if a message says all of it; None for a mistake in Paceline."""
    from paceline.specs import PacelineError  # imported here so that --help stays fast

    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return PacelineError(
            f"{error.filename or 'a file'} cannot be written: {error.strerror}",
            fix="make room there (`df -h`, `quota -s`), or choose another folder, then try again",
        )
    return error if isinstance(error, PacelineError) else None
