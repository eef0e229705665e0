"""The record of a run's code: where its copy lies, and what it is a copy of."""

from pathlib import Path

from paceline.specs.base import Spec


class CodeSnapshot(Spec):
    """A copy of the user's code; `code/N.toml` in the run's folder."""

    train: Path
    """The user's own file."""
    file: Path
    """Its copy, relative to the run folder."""
    taken: str
    """Local time of the copy."""
    files: int
    total_bytes: int
    commit: str | None = None
    """Commit of the training's git repository; `code/N.diff` has what differs from it."""
    changed: bool = False
    """Whether any code of the repository differs from that commit."""
    left_out: tuple[str, ...] = ()
    """Code that exceeds the limits of a snapshot, and runs from the user's folder."""
    editable: tuple[str, ...] = ()
    """Editable-installed packages outside the training's folder, which run from their own."""
