"""What the kernel knows of a process: its start time, its name, its parent's death."""

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_launcher() -> None:
    """End this process when the supervisor that started it dies, whatever it dies of."""
    launcher = os.environ.get("PACELINE_LAUNCHER_PID")
    if launcher is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it died before the line above
        os._exit(1)


def name_process(role: str) -> None:
    """Have `ps` and `top` tell the workers apart."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"paceline {role}".encode())


def born(pid: int) -> int:
    """When the kernel started a process, in clock ticks since boot."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def age_seconds() -> float:
    """How long ago this process was started, by the kernel's clock since boot."""
    start_ticks = born(os.getpid())
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
