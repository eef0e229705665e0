"""Interrupt the collectives of a generation that has ended."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from paceline.membership.hooks import Hooks

_INTERRUPT_SECONDS = 0.1
_STUCK_SECONDS = 5.0
_BUSY_CORES = 0.1
"""A process that uses less of a core than this is idle."""
_COMMUNICATION_THREADS = ("gloo", "pt_gloo")
"""Name prefixes of threads that only communicate."""


class Idle:
    """Detects whether this process has computed anything since this object was created."""

    def __init__(self) -> None:
        self._since, self._used = time.monotonic(), _compute_seconds()

    @property
    def seconds(self) -> float:
        """Age of this object."""
        return time.monotonic() - self._since

    def longer_than(self, seconds: float) -> bool:
        """Return whether `seconds` have passed and the process has been idle since creation."""
        if self.seconds <= seconds:
            return False
        return _compute_seconds() - self._used < _BUSY_CORES * self.seconds


def _compute_seconds() -> float:
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


async def interrupt_until(left: Callable[[], bool], hooks: Hooks) -> None:
    """Interrupt a training until it has left its generation.

    One interruption is not enough: the training may be about to open connections and wait for them.
    A collective may also fail to notice that its connections are shut down. Then this process kills
    itself, so that the others can continue.
    """
    idle = Idle()
    while not left():
        hooks.interrupt()
        await asyncio.sleep(_INTERRUPT_SECONDS)
        if idle.seconds > _STUCK_SECONDS:
            if idle.longer_than(_STUCK_SECONDS):
                hooks.kill_process()
            idle = Idle()
