"""The state that each worker writes about itself: its mean step time and step breakdown."""

import math
import time
from collections.abc import Callable

from paceline.comm.groups import Groups
from paceline.specs import PARTS, Workers, WorkerState
from paceline.train.monitor.step_windows import Window

STATES_PER_SECOND, STATES_APART_SECONDS = 2000, 5.0
"""Limit on worker states that all workers write per second, and the longest interval per worker."""


class WorkerStates:
    """The windows since this worker last wrote its state."""

    def __init__(self, groups: Groups, write: Callable[..., None]) -> None:
        """`write`: write an event from this worker."""
        self._groups, self._write = groups, write
        self._windows: list[Window] = []
        self._written_at = -math.inf

    def add(self, window: Window, steps: int) -> None:
        """Add a window up to this step; write the state if that is due."""
        self._windows.append(window)
        apart = min(STATES_APART_SECONDS, self._groups.placement.workers / STATES_PER_SECOND)
        if time.perf_counter() - self._written_at >= apart:
            self.write(steps)

    def write(self, steps: int) -> None:
        """Write this worker's mean step time and breakdown since its last state."""
        windows, self._windows, self._written_at = self._windows, [], time.perf_counter()
        if not windows:
            return
        count = sum(len(window.steps) for window in windows)
        parts = {part: sum(window.parts.get(part, 0.0) for window in windows) for part in PARTS}
        state = WorkerState(
            rank=self._groups.placement.rank,
            step=steps,
            step_seconds=sum(sum(window.steps.seconds) for window in windows) / count,
            parts={part: _short(seconds / count) for part, seconds in parts.items() if seconds},
        )
        self._write(Workers, states=[state])


def _short(seconds: float) -> float:
    """Round to 0.1 µs: most of an event file is digits."""
    return round(seconds, 7)
