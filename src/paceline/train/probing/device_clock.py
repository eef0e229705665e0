"""Seconds of a call on its device, without those of the host that queues it."""

import math
import time
from collections.abc import Callable
from statistics import median

import torch

from paceline.comm.device_kind import device_kind
from paceline.train.probing.timer import once

WINDOW_SECONDS = 0.005
"""Time several shorter calls together, up to about this time."""
WINDOWS = 3
MOST_CALLS = 100
AHEAD = 1.5
"""Work queued before the calls, relative to the host's time for queueing them."""
_AHEAD_SIZE = 1024
"""Rows and columns of the product that keeps the device busy meanwhile."""


class DeviceClock:
    """Times calls on one device.

    An accelerator runs what the host has queued. Short calls would wait for the host, so the device
    first gets other work, and events around the calls measure only the device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._asynchronous = device.type != "cpu"
        if self._asynchronous:
            self._filler = torch.ones(_AHEAD_SIZE, _AHEAD_SIZE, device=device)
            self._fill(1)
            self._filler_seconds = max(once(lambda: self._fill(3), device) / 3, 1e-6)

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the median seconds of a call; the first one does not count."""
        call()
        device_kind().synchronize(self._device)
        begin = time.perf_counter()
        call()
        queued = time.perf_counter() - begin
        device_kind().synchronize(self._device)
        whole = time.perf_counter() - begin
        count = min(max(1, round(WINDOW_SECONDS / max(whole, 1e-6))), MOST_CALLS)
        if not self._asynchronous:
            windows = [
                once(lambda: [call() for _ in range(count)], self._device) / count
                for _ in range(WINDOWS)
            ]
            return median(windows)
        return median(self._behind_work(call, count, queued) for _ in range(WINDOWS))

    def _behind_work(self, call: Callable[[], object], count: int, queued: float) -> float:
        self._fill(math.ceil(AHEAD * queued * count / self._filler_seconds))
        start, end = (torch.Event(self._device, enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        end.record()
        device_kind().synchronize(self._device)
        return max(float(start.elapsed_time(end)) / 1e3 / count, 1e-9)

    def _fill(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._filler, self._filler)
