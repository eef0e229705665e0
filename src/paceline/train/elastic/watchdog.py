"""Detect a training that makes no progress although every process lives."""

import sys
import threading
from collections.abc import Callable

from paceline.membership.interruption import Idle


class Watchdog:
    """Makes a worker leave its generation when it takes no step for long and computes nothing.

    A worker stuck in user code and one that waits for it in a collective look the same from here,
    and both should leave: the waiting ones regroup, and the stuck one is killed (see
    `membership.interruption`) and started again.
    """

    def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
        self._seconds, self._interrupt = seconds, interrupt
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
        idle, moves = Idle(), self._moves
        while not self._over.wait(self._seconds / 10):
            if self._rests or moves != self._moves:  # a step is short: it only counts
                idle, moves = Idle(), self._moves
            elif idle.longer_than(self._seconds):
                self.rest()
                print(
                    f"no step and no computation for {idle.seconds:.0f} s:"
                    " this worker leaves its process groups and regroups",
                    file=sys.stderr,
                )
                self._interrupt()
