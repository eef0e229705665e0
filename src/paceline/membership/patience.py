"""Waiting for another member, without counting the time in which this process itself was late."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_SLICES = 12


async def patiently(
    work: Coroutine[Any, Any, _Result], seconds: float | Callable[[], float]
) -> _Result:
    """Return the result of `work`, or raise a TimeoutError after `seconds`.

    On a busy machine, this process may be off the CPU for a while and find the timeout passed
    before it has read the answer. So the timeout is divided into slices, and a slice counts as long
    as it was planned, however late this process wakes up. A function is called for each slice: what
    becomes known during the wait may shorten or lengthen it.
    """
    task = asyncio.ensure_future(work)
    waited = 0.0
    try:
        while True:
            most = seconds() if callable(seconds) else seconds
            if waited > most * (1 - 0.5 / _SLICES):
                raise TimeoutError(f"no answer for {waited:.1f} s")
            pause = min(most / _SLICES, most - waited)
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return task.result()
            waited += pause
    finally:
        task.cancel()
