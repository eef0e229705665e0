"""The log of a node's workers: their output, line by line."""

import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from paceline.specs.owned_files import open_owned


class WorkerLog:
    """A log file. Lines that do not fit on the disk are dropped: the workers must not block."""

    def __init__(self, path: Path) -> None:
        self.file: IO[bytes] = open_owned(path, "ab", buffering=0)
        self._path, self._dropped = path, 0
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Append a line; safe from any thread."""
        with self._lock:
            text = line.encode()
            if self._dropped:
                text = f"\n({self._dropped} lines are missing)\n".encode() + text
            try:
                if self.file.write(text) < len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                with suppress(OSError):  # standard error may be on the same disk
                    if not self._dropped:
                        print(f"{self._path} cannot be written: {error.strerror}", file=sys.stderr)
                self._dropped += 1
            else:
                self._dropped = 0

    def close(self) -> None:
        """Close the file."""
        self.file.close()
