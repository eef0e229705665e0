"""Write a node's events."""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from paceline.specs import Degraded, Event, RunFolderGone
from paceline.specs.line_files import WaitingLines
from paceline.specs.owned_files import open_owned


class EventWriter:
    """Appends events to one node's file, in whole lines; safe from any thread.

    A full disk does not end a training: events wait in memory until they can be written.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._folder, self._node = folder, node
        self._path = folder / f"{node}.jsonl"
        self._lines = WaitingLines(after_torn_line=_ends_torn(self._path))
        self._off: Degraded | None = None
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Append one event; readers can see it when this returns, unless it has to wait."""
        with self._lock:
            self._lines.append(_line(event))
            try:
                with open_owned(self._path, "ab", buffering=0) as file:
                    self._lines.write_to(file, self._restored_line())
            except OSError as error:
                self._keep_waiting(error, event.generation)
            else:
                self._off = None

    def check_folder(self) -> None:
        """Raise `RunFolderGone` if the run's folder was deleted."""
        if self._off is not None and not self._folder.exists():
            raise RunFolderGone(self._folder.parent)

    def _restored_line(self) -> bytes:
        """Return the line that ends a time in which no event could be written; else nothing."""
        if self._off is None:
            return b""
        dropped = self._lines.dropped
        note = f"{dropped} events were lost" if dropped else "no event was lost"
        return _line(self._off.restored(time.time(), note=note))

    def _keep_waiting(self, error: OSError, generation: int) -> None:
        if self._off is None:
            why = f"{self._path.name} cannot be written: {error.strerror}"
            self._off = Degraded(
                time=time.time(),
                node=self._node,
                generation=generation,
                protection="events",
                why=why,
            )
            self._lines.put_first(_line(self._off))
            with suppress(OSError):  # standard error may be on the same disk
                print(f"{why}; events wait in memory", file=sys.stderr)
        self._lines.limit()


def _line(event: Event) -> bytes:
    return event.model_dump_json().encode() + b"\n"


def _ends_torn(path: Path) -> bool:
    """Return whether a crash left half a line, so that the next event must start a new one."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # missing or empty
        return False
