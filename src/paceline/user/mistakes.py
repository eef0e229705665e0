"""Errors that the user's own code raises before it has ever worked, in one sentence."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.comm.group_errors import CommunicationError
from paceline.comm.signing import ForgedValue
from paceline.specs import PacelineError, RunOver, TrainingMistake

_NOT_MISTAKES = (PacelineError, CommunicationError, ForgedValue, RunOver, OSError)
_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)


@contextmanager
def users_code(doing: str, fix: str) -> Iterator[None]:
    """Run a block that calls the user's code; turn its errors into a `TrainingMistake`."""
    try:
        yield
    except _NOT_MISTAKES:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        where = _users_line(error)
        raise TrainingMistake(
            f"{doing} failed{f' at {where}' if where else ''}: {type(error).__name__}: {said}",
            fix=fix,
        ) from error


def _users_line(error: Exception) -> str | None:
    """Return the innermost line of the traceback that is not in a library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.exists() and not str(path.resolve()).startswith(_LIBRARIES):
            return f"{path.name}:{frame.lineno}"
    return None
