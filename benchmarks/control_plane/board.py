"""A table in memory that the rig shares with all processes it forks: one row per worker.

It only carries what the rig measures and the addresses for the first roster; workers speak to each
other over their sockets.
"""

import mmap
from enum import IntEnum


class Field(IntEnum):
    """The columns of the table; times are monotonic nanoseconds."""

    PID = 0
    NODE = 1
    PORT = 2
    """Of the control listener, once it listens."""
    STORE_PORT = 3
    START_TICKS = 4
    GENERATION = 5
    """Of the last generation that began for this worker, plus 1."""
    BEGUN_AT = 6
    MEMBERS = 7
    """Size of that generation's roster."""
    STEP = 8
    """Last committed step."""
    STEPPED_AT = 9
    SENT_MESSAGES = 10
    SENT_BYTES = 11
    RECEIVED_BYTES = 12
    SENT_HEARTBEATS = 13
    RENAMED = 14
    """How often the others went on without this worker while it lived."""
    ENDED = 15
    """1 if its membership has ended."""
    ASKED = 16
    """What the rig asks of this worker; 0: to wait."""
    DIVERGED = 17
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
