"""Read a run's folder repeatedly and build the run's state from it."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from paceline.report.reading.run_state import RunState
from paceline.specs import AnyEvent, Run, RunFolderGone, event_adapter
from paceline.specs.line_files import whole_lines

_MOST_LINE_BYTES = 16 << 20
"""Maximum size of an event; a longer line is unreadable."""


class RunReader:
    """Reads a run's events incrementally: each `refresh` reads only new lines."""

    def __init__(self, run: Run, on_events: Callable[[list[AnyEvent]], None] | None = None) -> None:
        self._events = run.events
        self._offsets: dict[Path, int] = {}
        self._state = RunState(job=run.job, plan=run.plan)
        self._first_look = True
        self._on_events = on_events

    def refresh(self) -> RunState:
        """Read the new lines of `events/*.jsonl`, and update and return the one state object.

        Pass the new events to `on_events`, if given. Raise `RunFolderGone` if the folder was
        deleted since the last call.
        """
        if not self._first_look and not self._events.is_dir():
            raise RunFolderGone(self._events.parent)
        now_monotonic, now_unix = time.monotonic(), time.time()
        new_events: list[AnyEvent] = []
        for file in sorted(self._events.glob("*.jsonl")):
            # File by file: the events of a large run would not fit into memory together.
            for event in self._new_events(file):
                # Nodes' clocks may differ from ours, so an event counts as written when we see it.
                # Only events from before our first look are dated by the clock that wrote them.
                age = max(0.0, now_unix - event.time) if self._first_look else 0.0
                self._state.take(event, now_monotonic - age)
                if self._on_events is not None:
                    new_events.append(event)
        self._first_look = False
        with contextlib.suppress(OSError):  # the folder may be gone; the next call raises it
            self._state.disk_full = os.statvfs(self._events).f_bavail == 0
        if self._on_events is not None:
            self._on_events(new_events)
        return self._state

    def _new_events(self, file: Path) -> Iterator[AnyEvent]:
        for line in self._new_lines(file):
            try:
                yield event_adapter.validate_json(line)
            except ValidationError:
                self._state.unreadable_lines += 1

    def _new_lines(self, file: Path) -> Iterator[bytes]:
        offset = self._offsets.get(file, 0)
        # A folder on a shared file system may list a file a moment before it can be opened.
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_size <= offset:
                return
            with file.open("rb") as stream:
                stream.seek(offset)
                for line in whole_lines(stream, _MOST_LINE_BYTES):
                    offset += len(line)
                    self._offsets[file] = offset
                    if line.strip():
                        yield line
