"""The workers of a run as they are seen from outside: their processes, and the lines they write."""

import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Worker:
    """A worker's process, and the last step that it wrote down."""

    pid: int
    start_ticks: str
    """When, in the kernel's ticks: another process of the same number is told from it by that."""
    node: str
    step: int = 0
    generation: int = -1
    part: int = -1
    at: float = 0.0
    """When it took that step."""
    python_threads: int = 0

    @property
    def name(self) -> str:
        """Of this process, and of the file in which it writes down its steps."""
        return f"{self.pid}-{self.start_ticks}-{self.node}"

    @property
    def alive(self) -> bool:
        """Whether the process is there, and not only what is left for its parent to see."""
        return _start_ticks(self.pid) == self.start_ticks

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is still there."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _start_ticks(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None where there is none that runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def named(name: str) -> Worker:
    """The worker of this name."""
    pid, start_ticks, node = name.split("-", 2)
    return Worker(int(pid), start_ticks, node)


def children(supervisor: int) -> list[Worker]:
    """The workers that a supervisor has started: by the names that these give themselves."""
    found = []
    for pid in _words(f"/proc/{supervisor}/task/{supervisor}/children"):
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            start_ticks = _start_ticks(int(pid))
            if name.startswith("paceline ") and name != "paceline server" and start_ticks:
                found.append(Worker(int(pid), start_ticks, socket.gethostname()))
    return found


def usage(pid: int) -> dict[str, int] | None:
    """Open files, threads and memory of a process; None when it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return {
            "fds": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 -- only how many
            "threads": int(status["Threads"]),
            "rss_bytes": 1024 * int(status["VmRSS"].split()[0]),
        }
    except (OSError, KeyError):
        return None


class Lines:
    """Follows files of JSON lines in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}

    def new(self) -> list[tuple[str, dict[str, Any]]]:
        """The file's name without its ending and what it says, for every whole line since the last
        call. It is called all the time, on files of all workers that have ever been."""
        try:
            with os.scandir(self._folder) as entries:
                paths = sorted(entry.path for entry in entries)
        except FileNotFoundError:
            return []
        return [(Path(path).stem, line) for path in paths for line in self._lines(path)]

    def _lines(self, path: str) -> list[dict[str, Any]]:
        offset = self._offsets.get(path, 0)
        if os.stat(path).st_size == offset:  # noqa: PTH116 -- a Path takes three times as long
            return []
        with Path(path).open("rb") as file:
            file.seek(offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        found = []
        for line in whole.splitlines():
            with suppress(ValueError):  # torn by a full disk, and others wrote behind it
                found.append(json.loads(line))
        return found


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []
