"""Verify that a lost process on this node is dead, or kill it."""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from paceline.cluster.process import start_ticks
from paceline.specs.runs.roster import Member

_KILL_SECONDS = 0.5


def is_dead(member: Member) -> bool:
    """Return whether a member's process on this node is dead.

    This process is not, which others may know under an earlier name.
    """
    if member.pid == os.getpid():
        return False
    try:
        process = os.pidfd_open(member.pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        return start_ticks(member.pid) != member.start_ticks or _has_ended(process, 0.0)
    except (OSError, IndexError, ValueError):
        return not Path(f"/proc/{member.pid}").exists()
    finally:
        os.close(process)


def kill(members: Iterable[Member]) -> None:
    """Kill members' processes on this node, and wait a moment until they have ended.

    The wait is for all of them together: this member answers nobody meanwhile. Never kills another
    process that has the same process ID, nor this process.
    """
    killed = [process for each in members if (process := _killed(each)) is not None]
    ends_at = time.monotonic() + _KILL_SECONDS
    for process in killed:
        _has_ended(process, max(0.0, ends_at - time.monotonic()))
        os.close(process)


def _killed(member: Member) -> int | None:
    """Kill a member's process; return its descriptor, or None if there is none."""
    if member.pid == os.getpid():
        return None
    try:
        process = os.pidfd_open(member.pid)
    except OSError:
        return None
    with suppress(OSError, IndexError, ValueError):
        if start_ticks(member.pid) == member.start_ticks:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return process
    os.close(process)
    return None


def _has_ended(process: int, seconds: float) -> bool:
    """Return whether a process ends within some seconds, even before its parent reaps it."""
    waiting = select.poll()  # unlike `select`, for descriptors above 1,023, too
    waiting.register(process, select.POLLIN)
    return bool(waiting.poll(round(1000 * seconds)))
