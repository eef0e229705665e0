"""Timing of calls on this worker's device."""

import time
from collections.abc import Callable

import torch

from paceline.comm.device_kind import device_kind

WINDOW_SECONDS = 0.02
"""Time several shorter calls together, up to about this time."""
MOST_WINDOWS = 7


def call_seconds(
    call: Callable[[], object], device: torch.device, budget_seconds: float
) -> list[float]:
    """Return the seconds of a call in several windows, or in one if a call exceeds the budget.

    The first call does not count: it allocates memory and loads kernels.
    """
    call()
    device_kind().synchronize(device)
    count = max(1, round(WINDOW_SECONDS / max(once(call, device), 1e-6)))
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < MOST_WINDOWS:
        found.append(once(lambda: [call() for _ in range(count)], device) / count)
        if time.perf_counter() - begin > budget_seconds:
            break
    return found


def once(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call, including the device's work."""
    begin = time.perf_counter()
    call()
    device_kind().synchronize(device)
    return time.perf_counter() - begin
