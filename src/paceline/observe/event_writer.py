"""Write a node's events."""

import errno
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from paceline.specs import Degraded, Event, RunFolderGone
from paceline.specs.owned_files import open_owned

MOST_WAITING = 10_000
"""Events kept in memory while the file cannot be written: those of about an hour."""


class EventWriter:
    """Appends events to one node's file, in whole lines; safe from any thread.

    A full disk does not end a training: events wait in memory until they can be written.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._folder, self._node = folder, node
        self._path = folder / f"{node}.jsonl"
        self._lead = b"\n" if _ends_torn(self._path) else b""
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._off: Degraded | None = None
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Append one event; readers can see it when this returns, unless it has to wait."""
        with self._lock:
            self._waiting.append(_line(event))
            try:
                self._append_waiting()
            except OSError as error:
                self._keep_waiting(error, event.generation)
            else:
                self._off, self._dropped = None, 0

    def check_folder(self) -> None:
        """Raise `RunFolderGone` if the run's folder was deleted."""
        if self._off is not None and not self._folder.exists():
            raise RunFolderGone(self._folder.parent)

    def _append_waiting(self) -> None:
        text = self._lead + b"".join(self._waiting)
        if self._off is not None:
            note = f"{self._dropped} events were lost" if self._dropped else "no event was lost"
            text += _line(self._off.restored(time.time(), note=note))
        # One write on a descriptor in append mode: several workers of a node share the file.
        with open_owned(self._path, "ab", buffering=0) as file:
            count = file.write(text)
            if count < len(text):
                self._take_back(file.fileno(), text[:count])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._waiting.clear()
        self._lead = b""

    def _take_back(self, descriptor: int, written: bytes) -> None:
        """Keep the whole lines of a short write, and remove the rest from the file."""
        lines = written.removeprefix(self._lead)
        whole = lines.rfind(b"\n") + 1
        for _ in range(lines.count(b"\n")):
            self._waiting.popleft()
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size == end:
            os.ftruncate(descriptor, end - (len(lines) - whole))
            self._lead = b"" if written else self._lead
        else:  # another process has written after it: readers skip the torn line
            self._lead = b"\n"

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
            self._waiting.appendleft(_line(self._off))
            with suppress(OSError):  # standard error may be on the same disk
                print(f"{why}; events wait in memory", file=sys.stderr)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[1]  # the first says why
            self._dropped += 1


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
