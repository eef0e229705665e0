"""Has a training leave the exchanges of a generation that has ended."""

import asyncio
import time
from collections.abc import Callable

from paceline.recover.hooks import Hooks

_INTERRUPT_SECONDS = 0.1
_STUCK_SECONDS = 5.0
_COMPUTING = 0.1
"""Of a core: a process that uses less than this computes nothing."""


async def interrupt_until(left: Callable[[], bool], hooks: Hooks) -> None:
    """Interrupt a training until it has left.

    Once is not enough: it may be about to open connections, and wait for them. And an exchange may
    not notice at all that its connections are shut: whoever waits in one ends its process, as if it
    had been killed, so that the others get on.
    """
    since, used = time.monotonic(), time.process_time()
    while not left():
        hooks.interrupt()
        await asyncio.sleep(_INTERRUPT_SECONDS)
        waited = time.monotonic() - since
        if waited > _STUCK_SECONDS:
            if time.process_time() - used < _COMPUTING * waited:
                hooks.end_itself()
            since, used = time.monotonic(), time.process_time()
