"""Detect a training that makes no progress although every process is alive."""

import sys
import threading
from collections.abc import Callable

from paceline.membership.interruption import Idle

_LOOKS = 10
"""Looks before it calls a worker stuck: a process that was stopped does not look meanwhile."""


class Watchdog:
    """A timer that makes a worker leave its generation after a long time without step or work.

    A worker stuck in user code and one that waits for it in a collective look the same from here,
    and both should leave: the waiting workers regroup, and the stuck one is killed (see
    `membership.interruption`) and restarted.
    """

    def __init__(
        self, seconds: float, interrupt: Callable[[], None], work_done: Callable[[], float]
    ) -> None:
        """`work_done`: as in `Hooks`."""
        self._seconds, self._interrupt, self._work_done = seconds, interrupt, work_done
        self._moves, self._rests = 0, True
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def moved(self) -> None:
        """Note progress."""
        self._moves += 1
        self._rests = False

    def rest(self) -> None:
        """Expect no progress until the next call of `moved`."""
        self._rests = True

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        idle, moves, looks = Idle(self._work_done), self._moves, 0
        while not self._over.wait(self._seconds / _LOOKS):
            looks += 1
            if not self._rests and moves == self._moves:  # `moved` only counts: steps are short
                if looks < _LOOKS:
                    continue
                if idle.longer_than(self._seconds):
                    self._leave(idle.seconds)
            idle, moves, looks = Idle(self._work_done), self._moves, 0

    def _leave(self, idle_seconds: float) -> None:
        self.rest()
        print(
            f"no step and no work for {idle_seconds:.0f} s:"
            " this worker leaves its process groups and regroups",
            file=sys.stderr,
        )
        self._interrupt()
