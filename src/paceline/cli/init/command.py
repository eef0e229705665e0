"""`paceline init`: write a training to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.console import Json, Quiet, print_json, say
from paceline.cli.options.grouped_command import GroupedCommand


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")] = Path("train.py"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a small training that runs as it is, to replace its parts by your own.

    Example:  paceline init
    """
    from contextlib import suppress
    from importlib.resources import files

    from paceline.cli.options.output_file import NO_ROOM
    from paceline.specs import PacelineError

    text = (files("paceline.cli.init") / "train.py.txt").read_text()
    try:
        with file.open("x") as created:
            created.write(text)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                file.unlink()  # a part of it may be there
        if error.errno in NO_ROOM:
            raise
        raise PacelineError(
            f"{file} cannot be written: {error.strerror}",
            fix="give another name: paceline init FILE",
        ) from None
    if json:
        print_json({"file": str(file)}, "init")
        return
    say(f"training: {file}", unless=quiet)
    say(f"next: paceline check {file}, then paceline run {file} -n 2", unless=quiet)


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command(cls=GroupedCommand)(init)
