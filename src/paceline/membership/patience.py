"""Waiting for another member, without counting the time in which this process itself was late."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_SLICES = 12


async def patiently(work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
    """Return the result of `work`, or raise a TimeoutError after `seconds`.

    On a busy machine, this process may be off the CPU for a while and find the timeout passed
    before it has read the answer. So the timeout is divided into slices, and a slice counts as long
    as it was planned, however late this process wakes up.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(_SLICES):
            done, _ = await asyncio.wait({task}, timeout=seconds / _SLICES)
            if done:
                return task.result()
        raise TimeoutError(f"no answer for {seconds:.1f} s")
    finally:
        task.cancel()
