"""How long a call takes on this worker's device."""

import time
from collections.abc import Callable

import torch

from paceline.comm.devices import synchronise

WINDOW_SECONDS = 0.02
"""Calls that are shorter are timed several at once."""
MOST_WINDOWS = 7


def call_seconds(
    call: Callable[[], object], device: torch.device, budget_seconds: float
) -> list[float]:
    """Seconds of a call in several windows; one window where a call takes longer than the budget.

    The first call is not counted: it allocates, and loads what it needs.
    """
    call()
    synchronise(device)
    count = max(1, round(WINDOW_SECONDS / max(once(call, device), 1e-6)))
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < MOST_WINDOWS:
        found.append(once(lambda: [call() for _ in range(count)], device) / count)
        if time.perf_counter() - begin > budget_seconds:
            break
    return found


def once(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - begin
