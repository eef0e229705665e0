"""Files that a command writes where its user said."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of any file: the command says what to do about them."""


def check_output(output: Path, *, beside: str | None = None) -> None:
    """Refuse a file that cannot be written, before the command spends time on its contents.

    `beside`: the suffix of a second file that is written beside it.
    """
    from paceline.specs import PacelineError

    with writing(output):
        folder, is_folder = output.absolute().parent, output.is_dir()
        there = folder.is_dir()
    if is_folder or not output.name:
        raise PacelineError(f"{output} is a folder", fix=f"give a file: -o {output / 'plan.toml'}")
    if not there:
        raise PacelineError(
            f"there is no folder {output.parent} for {output.name}",
            fix="make it, or give another file with -o",
        )
    if not os.access(output if output.exists() else folder, os.W_OK):
        raise PacelineError(
            f"you may not write {output.absolute()}", fix="give another file with -o"
        )
    if output.suffix == beside:
        raise PacelineError(
            f"-o {output} is the name of the picture that is written beside it",
            fix=f"give another suffix: -o {output.with_suffix('.toml')}",
        )


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say which file the system refuses to write in this block, and why."""
    from paceline.specs import PacelineError

    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise PacelineError(
            f"{output} cannot be written: {why}", fix="give another file with -o"
        ) from None
