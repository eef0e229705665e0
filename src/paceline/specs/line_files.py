"""Files of lines, such as events and ledgers, to which a writer may be appending."""

import errno
import os
from collections import deque
from collections.abc import Iterator
from typing import IO, BinaryIO

MOST_WAITING = 10_000
"""Lines kept in memory while a file cannot be written: the events of about an hour."""


class WaitingLines:
    """Lines for a file on a disk that may be full: they wait in memory until they fit."""

    def __init__(self, *, after_torn_line: bool = False) -> None:
        self._lead = b"\n" if after_torn_line else b""
        self._lines: deque[bytes] = deque()
        self.dropped = 0
        """Lines that were given up since the last complete write."""

    def append(self, line: bytes) -> None:
        """Add a line."""
        self._lines.append(line)

    def put_first(self, line: bytes) -> None:
        """Add a line before all others."""
        self._lines.appendleft(line)

    def limit(self) -> None:
        """Drop the oldest line but the first if too many wait; called after a failed write."""
        if len(self._lines) > MOST_WAITING:
            del self._lines[1]
            self.dropped += 1

    def write_to(self, file: IO[bytes], last: bytes = b"") -> None:
        """Append all lines, then `last`, to an unbuffered file in append mode.

        Raise an `OSError` if not all fit: whole lines stay in the file, the others keep waiting.
        """
        # One write in append mode: several workers of a node may share the file.
        text = self._lead + b"".join(self._lines) + last
        count = file.write(text)
        if count < len(text):
            self._take_back(file.fileno(), text[:count])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
        self._lines.clear()
        self._lead, self.dropped = b"", 0

    def _take_back(self, descriptor: int, written: bytes) -> None:
        """Keep the whole lines of a short write, and remove the rest from the file."""
        lines = written.removeprefix(self._lead)
        whole = lines.rfind(b"\n") + 1
        for _ in range(lines.count(b"\n")):
            self._lines.popleft()
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size == end:
            os.ftruncate(descriptor, end - (len(lines) - whole))
            self._lead = b"" if written else self._lead
        else:  # another process has written after it: readers skip the torn line
            self._lead = b"\n"


def whole_lines(stream: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines that end in a newline; one of more than `most_bytes` comes in pieces.

    An unfinished last line is left out: its writer may have died, or still be writing it.
    """
    while line := stream.readline(most_bytes):
        if not line.endswith(b"\n") and len(line) < most_bytes:
            return
        yield line
