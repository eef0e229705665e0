"""Has a training leave the exchanges of a generation that has ended, and tells who cannot."""

import asyncio
import time
from collections.abc import Callable

from paceline.recover.hooks import Hooks

_INTERRUPT_SECONDS = 0.1
_STUCK_SECONDS = 5.0
_COMPUTING = 0.1
"""Of a core: a process that uses less than this computes nothing."""


class Idle:
    """Tells whether this process has computed anything since it was made."""

    def __init__(self) -> None:
        self._since, self._used = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """How long ago that was."""
        return time.monotonic() - self._since

    def longer_than(self, seconds: float) -> bool:
        """Whether it is longer ago than that, and hardly any processor time was used."""
        waited, used = self.seconds, time.process_time() - self._used
        return waited > seconds and used < _COMPUTING * waited


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
