"""What a process asks of the kernel about itself."""

import ctypes
import os
import signal

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
