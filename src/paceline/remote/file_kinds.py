"""Which files of a run's folder a store has, and as which objects.

A file that grows becomes parts of a fixed size, because objects cannot be appended to: only the
last part is written again. Each file is written by one machine. Files that machines signal each
other with have a folder of their own, so that one request lists them all.
"""

from enum import Enum
from pathlib import PurePosixPath

from paceline.specs.errors import PacelineError

PART_BYTES = 1 << 20
"""Size of all parts of a growing file but the last."""
SIGNALS = "signals"
"""The objects' folder of the files that machines signal each other with."""
CHECKPOINTS = "checkpoints"
"""The folder of checkpoints: workers read and write them in the store themselves."""

_GROWING = ("events", "logs", "ledger")
_SIGNALS = ("lease", "rendezvous", "outcome", "requeue", "batch-alive")
_BYTECODE = "__pycache__"
_OWN = ("secret", "prometheus-token", "object-store", CHECKPOINTS)
"""Files that never leave their machine."""


class FileKind(Enum):
    """How a store has a file."""

    GROWING = "growing"
    SIGNAL = "signal"
    WHOLE = "whole"
    OWN = "own"


def kind_of(file: str) -> FileKind:
    """Return the kind of a file by its path in the run's folder."""
    parts = PurePosixPath(file).parts
    drafts = any(part.startswith(".") for part in parts)
    if parts[0] in _OWN or drafts or _BYTECODE in parts:
        return FileKind.OWN
    if parts[0] in _GROWING:
        return FileKind.GROWING
    return FileKind.SIGNAL if parts[0] in _SIGNALS else FileKind.WHOLE


def object_of(file: str) -> str:
    """Return the name of the object of a file that does not grow."""
    return f"{SIGNALS}/{file}" if kind_of(file) is FileKind.SIGNAL else file


def part_of(file: str, number: int) -> str:
    """Return the name of the object of a growing file's part."""
    return f"{file}/{number:08d}"


def file_of(name: str) -> tuple[str, int]:
    """Return an object's file and, if that grows, the number of the part."""
    file = name.removeprefix(f"{SIGNALS}/")
    parts = PurePosixPath(file).parts
    if not parts or "\0" in file or any(part in ("..", "/") for part in parts):
        raise PacelineError(
            f"the run's store has the object {name!r}, whose file would be outside the"
            " run's folder",
            fix="see who else can write to that store; delete the object if you do not know it",
        )
    if kind_of(file) is FileKind.GROWING and parts[-1].isdigit():
        return str(PurePosixPath(*parts[:-1])), int(parts[-1])
    return str(PurePosixPath(*parts)), 0
