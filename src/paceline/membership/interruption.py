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
"""A process that uses less of a core than this computes nothing."""
_COMMUNICATION_THREADS = ("gloo", "pt_gloo")
"""How the names of threads begin that only communicate."""


class Idle:
    """Tells whether this process has computed anything since this was created."""

    def __init__(self) -> None:
        self._since, self._used = time.monotonic(), _compute_seconds()

    @property
    def seconds(self) -> float:
        """Age of this object."""
        return time.monotonic() - self._since

    def longer_than(self, seconds: float) -> bool:
        """Whether this is older than that, and the process has used hardly any CPU time since."""
        if self.seconds <= seconds:
            return False
        return _compute_seconds() - self._used < _BUSY_CORES * self.seconds


def _compute_seconds() -> float:
    """Return the CPU time of this process's threads, without those that only communicate.

    Gloo's threads may spin over a connection that is shut down.
    """
    seconds = 0.0
    for thread in psutil.Process().threads():
        with suppress(OSError):  # it has ended meanwhile
            name = Path(f"/proc/self/task/{thread.id}/comm").read_text()
            if not name.startswith(_COMMUNICATION_THREADS):
                seconds += thread.user_time + thread.system_time
    return seconds


async def interrupt_until(left: Callable[[], bool], hooks: Hooks) -> None:
    """Interrupt a training until it has left its generation.

    Once is not enough: it may be about to open connections and wait for them. And a collective may
    not notice that its connections are shut down: then this process kills itself, so that the
    others can continue.
    """
    idle = Idle()
    while not left():
        hooks.interrupt()
        await asyncio.sleep(_INTERRUPT_SECONDS)
        if idle.seconds > _STUCK_SECONDS:
            if idle.longer_than(_STUCK_SECONDS):
                hooks.kill_process()
            idle = Idle()
