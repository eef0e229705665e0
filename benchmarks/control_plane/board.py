"""A table in memory that the rig shares with all processes it forks: one row per worker.

It only carries what the rig measures; workers speak to each other over their sockets.
"""

import mmap
from enum import IntEnum


class Field(IntEnum):
    """The columns of the table; times are monotonic nanoseconds."""

    PID = 0
    PORT = 1
    """Of the control listener, once it listens."""
    GENERATION = 2
    """Of the last generation that began for this worker, plus 1."""
    BEGUN_AT = 3
    MEMBERS = 4
    """Size of that generation's roster."""
    STEP = 5
    """Last committed step."""
    STEPPED_AT = 6
    SENT_MESSAGES = 7
    SENT_BYTES = 8
    RECEIVED_BYTES = 9
    SENT_HEARTBEATS = 10
    RENAMED = 11
    """How often the others went on without this worker while it lived."""
    ENDED = 12
    """1 if its membership has ended."""
    ASKED = 13
    """What the rig asks of this worker; 0: to wait."""
    DIVERGED = 14
    """1 if the members of a generation had different histories."""


class Board:
    """The shared table."""

    def __init__(self, rows: int) -> None:
        self._width = len(Field)
        self._cells = memoryview(mmap.mmap(-1, rows * self._width * 8)).cast("q")

    def get(self, row: int, field: Field) -> int:
        """Return a cell."""
        return self._cells[row * self._width + field]

    def set(self, row: int, field: Field, value: int) -> None:
        """Set a cell."""
        self._cells[row * self._width + field] = value

    def add(self, row: int, field: Field, value: int) -> None:
        """Add to a cell, which only one process writes."""
        self._cells[row * self._width + field] += value
