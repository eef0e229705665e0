"""Finds a training in which nothing happens any more, though every process lives."""

import sys
import threading
from collections.abc import Callable

from paceline.membership.interruption import Idle


class Watchdog:
    """Has a worker leave its generation when it takes no step for long, and computes nothing.

    Who stands still in code of its own, and who waits for that one in an exchange, look the same
    from here, and both are right to leave: those who wait meet anew, and the one that does not even
    leave is ended (see `recover.leaving`) and started again.
    """

    def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
        self._seconds, self._interrupt = seconds, interrupt
        self._moves, self._rests = 0, True
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def moved(self) -> None:
        """The training gets on."""
        self._moves += 1
        self._rests = False

    def rest(self) -> None:
        """Nothing has to happen until the training gets on again."""
        self._rests = True

    def close(self) -> None:
        """Nobody watches any more."""
        self._over.set()

    def _watch(self) -> None:
        idle, moves = Idle(), self._moves
        while not self._over.wait(self._seconds / 10):
            if self._rests or moves != self._moves:  # a step is short: it only counts
                idle, moves = Idle(), self._moves
            elif idle.longer_than(self._seconds):
                self.rest()
                print(
                    f"no step was taken for {idle.seconds:.0f} s, in which nothing was computed:"
                    " this worker leaves the others, and meets them anew",
                    file=sys.stderr,
                )
                self._interrupt()
