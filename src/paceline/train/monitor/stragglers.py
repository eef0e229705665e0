"""Straggler detection: a worker that slows the others reports itself and the cause.

Every few steps the workers sum a histogram of their step times, which is as small with ten thousand
workers as with two. From it, each worker knows the median and its own ratio to it. No step waits
for the sum: a worker reads it when it is complete. A window's time is that of its fastest step, so
a worker counts as a straggler only if every step of several consecutive windows was slow: on shared
processors, equal workers are slow in turn, and none of them is a straggler.
"""

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from paceline.comm.groups import Groups
from paceline.comm.host_copies import DelayedReading, queued_to
from paceline.parallel.step.step_clock import Clock
from paceline.specs import PARTS, Part
from paceline.specs.runs.events import own_seconds

WINDOW_STEPS, WINDOWS = 4, 4
"""A worker reports that it is slow after at most 20 steps: the rest of a window, four whole
windows, and one in which their sum arrives."""
SLOW, STEADY = 1.5, 1.2
"""Ratios to the median: above the first a worker is slow, below the second it no longer is."""
HOLDS_UP = 0.1
"""Fraction of a step; a worker that is slow by less than this delays no other."""

_SHORTEST_SECONDS, _RATIO, _BUCKETS = 1e-5, 1.05, 384
"""Histogram from 10 µs to 23 minutes; its median is exact to within 2.5 %."""

Cause = Literal["data", "computing", "saving", "loop"]
_PARTS_OF: dict[Cause, tuple[Part, ...]] = {
    "data": ("data",),
    "computing": ("forward", "backward", "pipeline", "optimizer"),
    "saving": ("checkpoint",),
    "loop": ("other",),
}
_WORDS: dict[Cause, str] = {
    "data": "it waits for its data",
    "computing": "its device computes slowly, or is shared",
    "saving": "it is stalled by checkpoints",
    "loop": "the code between its steps is slow",
}


@dataclass(frozen=True)
class _Window:
    """A window of this worker's steps, and the pending sum over all workers."""

    step: int
    own: float
    """Seconds of the fastest step, without the time spent waiting for others."""
    seconds: float
    parts: dict[Part, float]
    summed: DelayedReading


class Stragglers:
    """A comparison of this worker's step time with the other workers'."""

    def __init__(
        self, groups: Groups, clock: Clock, on_straggler: Callable[[int, float, Cause, str], None]
    ) -> None:
        self._groups, self._clock = groups, clock
        self._on_straggler = on_straggler
        """Report that this worker is slow: `(step, ratio to the median, cause, sentence)`."""
        self._begin = clock.total()
        self._busy = _busy(self._begin)
        self._own: list[float] = []
        self._under_way: deque[_Window] = deque()
        self._causes: list[Cause] = []
        """Causes of the consecutive windows in which this worker was slow."""
        self._steady_windows = 0
        self._named: Cause | None = None

    def stepped(self, step: int) -> None:
        """Record a step and judge completed windows. All workers call this every step."""
        total = self._clock.total()
        before, self._busy = self._busy, _busy(total)
        self._own.append(self._busy - before)
        if len(self._own) == WINDOW_STEPS:
            self._under_way.append(self._shared(step, total))
            self._own, self._begin = [], total
        while self._under_way and self._under_way[0].summed.is_there:
            self._judge(self._under_way.popleft())

    def close(self) -> None:
        """Wait for pending sums."""
        while self._under_way:
            self._under_way.popleft().summed.values()

    def _shared(self, step: int, total: dict[Part, float]) -> _Window:
        parts = {part: (total[part] - self._begin[part]) / WINDOW_STEPS for part in PARTS}
        own = min(self._own)
        row = np.zeros(_BUCKETS + len(PARTS), dtype=np.float32)
        row[_bucket(own)] = 1.0
        row[_BUCKETS:] = list(parts.values())
        # Not a list of 400 numbers, which takes longer.
        summed = queued_to(self._groups.device, torch.from_numpy(row))
        reading = DelayedReading(summed, self._groups.sum_later(summed))
        return _Window(step, own, sum(parts.values()), parts, reading)

    def _judge(self, window: _Window) -> None:
        summed = window.summed.values().numpy()
        median = median_seconds(summed[:_BUCKETS])
        times = window.own / median
        if times > SLOW and window.own - median > HOLDS_UP * window.seconds:
            others = self._groups.placement.workers - 1
            elsewhere = {
                part: (all_ - window.parts[part]) / others
                for part, all_ in zip(PARTS, summed[_BUCKETS:].tolist(), strict=True)
            }
            self._causes = [*self._causes, _cause(window.parts, elsewhere)][-WINDOWS:]
            self._steady_windows = 0
            self._report(window, times, elsewhere)
            return
        self._causes = []
        self._steady_windows = self._steady_windows + 1 if times < STEADY else 0
        if self._steady_windows >= WINDOWS:
            self._named = None

    def _report(self, window: _Window, times: float, elsewhere: dict[Part, float]) -> None:
        """Report a slow worker once, and again when the cause has changed for certain."""
        (cause, count), *_ = Counter(self._causes).most_common()
        changed = cause != self._named and (self._named is None or count == WINDOWS)
        if len(self._causes) < WINDOWS or not changed:
            return
        self._named = cause
        here, there = _of(window.parts, cause), _of(elsewhere, cause)
        self._on_straggler(
            window.step,
            times,
            cause,
            f"{_WORDS[cause]}: {_milliseconds(here)} of a step, {_milliseconds(there)} on the"
            " others",
        )


def median_seconds(counted: ArrayLike) -> float:
    """Return the median of a histogram of seconds; the faster of two workers."""
    seen = np.cumsum(counted)
    assert seen[-1] > 0, "a histogram of nobody"
    bucket = int(seen.searchsorted(seen[-1] / 2))
    return float(_SHORTEST_SECONDS * _RATIO ** (bucket + 0.5))


def _bucket(seconds: float) -> int:
    times = max(seconds, _SHORTEST_SECONDS) / _SHORTEST_SECONDS
    return min(_BUCKETS - 1, int(math.log(times, _RATIO)))


def _busy(total: dict[Part, float]) -> float:
    return own_seconds(total, sum(total.values()))


def _cause(here: dict[Part, float], elsewhere: dict[Part, float]) -> Cause:
    return max(_PARTS_OF, key=lambda cause: _of(here, cause) - _of(elsewhere, cause))


def _of(parts: dict[Part, float], cause: Cause) -> float:
    return sum(parts[part] for part in _PARTS_OF[cause])


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
