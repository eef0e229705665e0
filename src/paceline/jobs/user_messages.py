"""Receivers of the messages of a run that is being started or followed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.specs import Run

Receiver = Callable[[str], None]


def _ignore(text: str) -> None:
    del text


@dataclass(frozen=True)
class Messages:
    """Receivers of messages by urgency; by default nobody hears them."""

    note: Receiver = _ignore
    """Gets progress and choices made by default."""
    warn: Receiver = _ignore
    """Gets warnings."""
    urgent: Receiver = _ignore
    """Gets answers to the user's signals."""
    live: bool = False
    """Whether to show the run live on standard error while waiting for its end."""


SILENT = Messages()


def short_path(path: Path) -> str:
    """Return a path relative to the working directory if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def short_place(run: "Run") -> str:
    """Return a run's URL, or its folder's path as `short_path` does."""
    return run.url or short_path(run.path)
