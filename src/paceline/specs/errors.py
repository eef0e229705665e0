"""Errors that the user can fix, and the exit codes besides 0."""

import sys
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from paceline.specs.error_topics import topic_of

INTERRUPTED_EXIT_CODE = 130
"""Ctrl-C, as shells report it."""

STOPPED_EXIT_CODE = 3
"""A run was asked to stop and stopped at a step boundary: neither finished nor failed."""

OUT_OF_MEMORY_EXIT_CODE = 4
"""A worker ran out of memory: the same start would fail again."""

TOO_FEW_EXIT_CODE = 5
"""Too few workers survive to continue; the run can restart from its last checkpoint."""

FOLDER_GONE_EXIT_CODE = 6
"""The run's folder was deleted while the run trained."""

DEVICE_FAILED_EXIT_CODE = 7
"""A worker's device failed: the worker is not restarted on it."""


class PacelineError(Exception):
    """A mistake or a state that the user can fix; shown as a sentence, never as a traceback.

    `problem` names the setting and what it conflicts with; `fix` says what to do. `topic` is the
    section of `paceline help` that says more: `about`, else the class's, else that of the module
    that raises the error.
    """

    exit_code = 2
    class_topic: ClassVar[str | None] = None
    """Topic of all errors of a class, wherever they are raised."""

    def __init__(self, problem: str, *, fix: str, about: str | None = None) -> None:
        super().__init__(f"{problem}\n  -> {fix}")
        self.problem = problem
        self.fix = fix
        raised_in: str = sys._getframe(1).f_globals["__name__"]
        self.topic = about or self.class_topic or topic_of(raised_in)

    @property
    def help_line(self) -> str:
        """Where to read more, in one line."""
        return f"See: paceline help {self.topic}"

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows, by IPython's protocol."""
        return [f"error: {self}"]


class TrainingMistake(PacelineError):
    """The user's code failed before it ever worked; the cause has its traceback."""

    class_topic = "script"


class RunOver(Exception):
    """The run ended while this worker waited for a rank."""


class RunFailed(PacelineError):
    """A run started but did not finish: its workers failed, or its job was ended."""

    exit_code = 1
    class_topic = "run-failed"


class DeviceFailed(PacelineError):
    """This worker's device no longer works, for this process at least."""

    exit_code = DEVICE_FAILED_EXIT_CODE
    class_topic = "devices"

    def __init__(self, node: str, device: str, why: str) -> None:
        super().__init__(
            f"{device} of {node} failed: {why}",
            fix=f"check the device's health on {node}; leave it out, or resume on other nodes",
        )
        self.device, self.why = device, why


class RunFolderGone(PacelineError):
    """The run's folder was deleted while the run trained."""

    exit_code = FOLDER_GONE_EXIT_CODE
    class_topic = "run-folder"

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is gone: the run's folder was deleted or moved while the run trained, so the"
            " run was ended",
            fix="start the run again, with --runs DIR where nothing deletes its folder",
        )


def show_mistakes_as_sentences() -> None:
    """Let `python train.py` end with a sentence and an exit code for a mistake or Ctrl-C."""
    global _shows
    if _shows:
        return
    _shows, otherwise = True, sys.excepthook

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if isinstance(error, PacelineError):
            print(f"error: {error}\n{error.help_line}", file=sys.stderr)
            raise SystemExit(error.exit_code)
        if isinstance(error, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            raise SystemExit(INTERRUPTED_EXIT_CODE)
        otherwise(kind, error, frames)

    sys.excepthook = show


_shows = False
