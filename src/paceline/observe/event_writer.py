"""Write a node's events."""

import os
from pathlib import Path

from paceline.specs import Event
from paceline.specs.owned_files import open_owned


class EventWriter:
    """Appends events to one node's file, one complete line at a time."""

    def __init__(self, folder: Path, node: str) -> None:
        self._path = folder / f"{node}.jsonl"
        self._lead = b"\n" if _ends_torn(self._path) else b""

    def write(self, event: Event) -> None:
        """Append one event; readers can see it when this returns."""
        # One write on a descriptor in append mode: several workers of a node share the file.
        with open_owned(self._path, "ab", buffering=0) as file:
            file.write(self._lead + event.model_dump_json().encode() + b"\n")
        self._lead = b""


def _ends_torn(path: Path) -> bool:
    """Return whether a crash left half a line, so that the next event must start a new one."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # missing or empty
        return False
