"""Has a training leave the exchanges of a generation that has ended, and tells who cannot."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from paceline.membership.hooks import Hooks

_INTERRUPT_SECONDS = 0.1
_STUCK_SECONDS = 5.0
_COMPUTING = 0.1
"""Of a core: a process that uses less than this computes nothing."""
_EXCHANGING = ("gloo", "pt_gloo")
"""How the threads are called that only carry exchanges."""


class Idle:
    """Tells whether this process has computed anything since it was made."""

    def __init__(self) -> None:
        self._since, self._used = time.monotonic(), _computed_seconds()

    @property
    def seconds(self) -> float:
        """How long ago that was."""
        return time.monotonic() - self._since

    def longer_than(self, seconds: float) -> bool:
        """Whether it is longer ago than that, and hardly any processor time was used."""
        if self.seconds <= seconds:
            return False
        return _computed_seconds() - self._used < _COMPUTING * self.seconds


def _computed_seconds() -> float:
    """Processor time of this process's threads, without those that only carry exchanges: they may
    turn in circles over a connection that is shut."""
    seconds = 0.0
    for thread in psutil.Process().threads():
        with suppress(OSError):  # it has ended meanwhile
            name = Path(f"/proc/self/task/{thread.id}/comm").read_text()
            if not name.startswith(_EXCHANGING):
                seconds += thread.user_time + thread.system_time
    return seconds


async def interrupt_until(left: Callable[[], bool], hooks: Hooks) -> None:
    """Interrupt a training until it has left.

    Once is not enough: it may be about to open connections, and wait for them. And an exchange may
    not notice at all that its connections are shut: whoever waits in one ends its process, as if it
    had been killed, so that the others get on.
    """
    idle = Idle()
    while not left():
        hooks.interrupt()
        await asyncio.sleep(_INTERRUPT_SECONDS)
        if idle.seconds > _STUCK_SECONDS:
            if idle.longer_than(_STUCK_SECONDS):
                hooks.end_itself()
            idle = Idle()
