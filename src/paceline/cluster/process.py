"""Process properties from the kernel: start time, name, death of the parent."""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_COMMUNICATION_THREADS = ("gloo", "pt_gloo")
"""Name prefixes of threads that only communicate."""


def die_with_launcher() -> None:
    """Kill this process when the supervisor that started it dies."""
    launcher = os.environ.get("PACELINE_LAUNCHER_PID")
    if launcher is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it died before the line above
        os._exit(1)


def name_process(role: str) -> None:
    """Set the name that `ps` and `top` show."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"paceline {role}".encode())


def start_ticks(pid: int) -> int:
    """Return a process's start time in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def age_seconds() -> float:
    """Return the age of this process in seconds."""
    start_seconds = start_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_seconds


def is_running(pid: int, started_ticks: int) -> bool:
    """Return whether the process with this ID and start time still runs on this machine."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in ("Z", "X") and int(fields[19]) == started_ticks


def compute_seconds() -> float:
    """Return the CPU time of this process's threads, without threads that only communicate.

    Gloo's threads may spin on a connection that is shut down.
    """
    seconds = 0.0
    for thread in psutil.Process().threads():
        with suppress(OSError):  # the thread has ended meanwhile
            name = Path(f"/proc/self/task/{thread.id}/comm").read_text()
            if not name.startswith(_COMMUNICATION_THREADS):
                seconds += thread.user_time + thread.system_time
    return seconds
