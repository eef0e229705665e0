"""Steps between measurements of the gradient noise: as many as keep its cost at 1 % of them, in
trainings that are long enough for that.

Workers take part in a sum at each measurement, so that all must measure at the same steps. Worker 0
times the first ones, and adds the interval that it found to its numbers of the next, where the
others add 0. Every worker reads that sum at the measurement after it. The sum has ended by then,
ten steps later, unless a worker is far behind.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

USUAL_STEPS = 10
LARGEST_COST = 0.0075
"""Of the time, for what is timed: calls of hooks and others add a third, which makes 1 %."""
WARM_UP, TIMED = 3, 5
"""Measurements that are not timed, since first calls take longer, and that are."""
FEWEST = 100
"""Measurements that a training has, even if they cost more: fewer would tell little."""


class NoiseInterval:
    """The interval, at first the usual one or the one that was asked for."""

    def __init__(
        self, asked: int | None, *, of: int, adapts: bool, decides: Callable[[], bool]
    ) -> None:
        """`asked`: steps between measurements, kept as they are. `of`: steps of the training.
        `decides`: whether this is worker 0 now."""
        self._first = USUAL_STEPS if asked is None else asked
        self._most = of // FEWEST
        self.adapts = asked is None and adapts
        self._decides = decides
        self.begin()

    def begin(self) -> None:
        """Begin with the workers of a generation, none of which may know what was decided."""
        self.steps = self._first
        self._is_decided = not self.adapts
        self._measured, self._spent_seconds, self._spent_before = 0, 0.0, 0.0
        self._step, self._began = 0, 0.0

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be measured, and count it."""
        if not self.steps or step % self.steps:
            return False
        self._measured += 1
        if self._measured == WARM_UP:
            self._step, self._began, self._spent_seconds = step, time.perf_counter(), 0.0
        self._spent_before = self._spent_seconds
        return True

    @property
    def must_read(self) -> bool:
        """Whether all workers read what was summed before, to learn the interval alike."""
        return not self._is_decided and self._measured > WARM_UP + TIMED + 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of the block as spent on the measurement."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent(time.perf_counter() - began)

    def spent(self, seconds: float) -> None:
        """Count time as spent on the measurement."""
        self._spent_seconds += seconds

    def proposal(self, step: int) -> float:
        """Return what this worker adds to the sum of a measured step."""
        measured = self._measured - WARM_UP
        if self._is_decided or measured <= TIMED or not self._decides():
            return 0.0
        seconds = (time.perf_counter() - self._began) / (step - self._step)
        times = self._spent_before / measured / (LARGEST_COST * seconds * self._first)
        return float(max(self._first, min(self._first * math.ceil(times), self._most)))

    def take(self, proposed: float) -> None:
        """Take the sum of all proposals of a measured step."""
        if proposed and not self._is_decided:
            self.steps, self._is_decided = round(proposed), True
