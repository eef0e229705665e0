"""Interrupt the collectives of a generation that has ended."""

import asyncio
import time
from collections.abc import Callable

from paceline.cluster.process import compute_seconds
from paceline.membership.hooks import Hooks

_INTERRUPT_SECONDS = 0.1
_STUCK_SECONDS = 5.0
_BUSY = 0.1
"""A process that does less work per second than this is idle."""
_SPIN_SECONDS = 30.0
"""A process that uses a core for so long, and does no work, spins."""


class Idle:
    """Detects whether this process has done any work since this object was created.

    `work_done`: a number that grows by 1 or more per second of work, such as CPU seconds.
    """

    def __init__(self, work_done: Callable[[], float]) -> None:
        self._work_done = work_done
        self._since, self._before = time.monotonic(), work_done()

    @property
    def seconds(self) -> float:
        """Age of this object."""
        return time.monotonic() - self._since

    def longer_than(self, seconds: float) -> bool:
        """Return whether `seconds` have passed and the process has been idle since creation."""
        if self.seconds <= seconds:
            return False
        # Of a longer time, the process may have been stopped for a part.
        return self._work_done() - self._before < _BUSY * seconds


async def interrupt_until(left: Callable[[], bool], hooks: Hooks) -> None:
    """Interrupt a training until it has left its generation.

    One interruption is not enough: the training may be about to open connections and wait for them.
    A collective may also fail to notice that its connections are shut down. Then this process kills
    itself, so that the others can continue; also if its CPU spins, as threads do that wait for an
    accelerator.
    """
    if left():
        return
    hooks.interrupt()
    await asyncio.sleep(_INTERRUPT_SECONDS)
    idle, workless = Idle(compute_seconds), Idle(hooks.work_done)  # most have left by now
    while not left():
        hooks.interrupt()
        await asyncio.sleep(_INTERRUPT_SECONDS)
        if idle.seconds > _STUCK_SECONDS:
            if idle.longer_than(_STUCK_SECONDS):
                hooks.kill_process()
            idle = Idle(compute_seconds)
        if workless.seconds > _SPIN_SECONDS:
            if workless.longer_than(_SPIN_SECONDS):
                hooks.kill_process()
            workless = Idle(hooks.work_done)
