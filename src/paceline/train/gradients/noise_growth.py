"""Decisions to grow the batch by the measured gradient noise, the same on all workers.

Workers compute the same noise up to rounding, and a batch that only some of them grow would end the
training. So worker 0 decides, and adds the larger batch to its numbers of the next measured step,
where the others add 0. Every worker reads that sum at the following measured step, and the batch
grows after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from paceline.learning.growth import WINDOW, Row, doubled, is_supported
from paceline.user.growing_batch import Growth

UNMEASURED = 3
"""Steps in a row that should have been measured and could not, before a worker says so."""

Unread = tuple[int, list[float], list[float]]
"""A measured step whose numbers nobody has used: its number, sum, and norm and weight."""


class NoiseGrowth:
    """What the measured steps of the current batch say about a larger one."""

    def __init__(self, growth: Growth, *, decides: Callable[[], bool]) -> None:
        """`decides`: whether this is worker 0 now."""
        self._growth, self._decides = growth, decides
        self._window: list[Row] = []
        self._wanted = 0
        """The batch to propose in the next measured step; 0 for none."""
        self.agreed = 0
        """The batch that all workers go over to after this step; 0 for none."""
        self.unread: Callable[[], list[Unread]] = list
        """Return the measured steps that are not taken yet, after waiting for their numbers."""
        self._restored: list[Unread] = []
        self._unmeasured = 0

    def proposal(self) -> float:
        """Return what this worker adds to the sum of a measured step."""
        wanted, self._wanted = self._wanted, 0
        return float(wanted if self._decides() else 0)

    def take(self, row: Row | None, proposed: float, batch: int) -> None:
        """Take a measured step of a batch, in order; None if its noise was not found."""
        self._unmeasured = 0
        if proposed:
            self.agreed = round(proposed)
            return
        if row is not None and batch < self._growth.to:
            self._window.append(row)
        if len(self._window) == WINDOW:
            larger = doubled(batch, self._growth.to)
            if is_supported(self._window, batch, larger):
                self._wanted = larger
            self._window = []

    def begin(self) -> None:
        """Begin to measure a batch."""
        self._window, self._wanted, self.agreed = [], 0, 0

    def resumed(self) -> list[Unread]:
        """Return the measured steps of a restored state that are still to be taken, once."""
        restored, self._restored = self._restored, []
        return restored

    def cannot_measure(self, parts: int) -> None:
        """Say once that the batch does not grow on these workers; one step without parts may be
        the end of an epoch."""
        self._unmeasured += 1
        if self._unmeasured == UNMEASURED and self._decides():
            why = "a step has only one part" if parts == 1 else "this layout does not measure it"
            print(
                f"the batch does not grow while its gradient noise is not known: {why};"
                " --micro-batch, replicas or shards make parts",
                flush=True,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "window": [list(row) for row in self._window],
            "wanted": self._wanted,
            "unread": [list(each) for each in self.unread()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state."""
        self._window = [(weight, variance, signal) for weight, variance, signal in state["window"]]
        self._wanted, self.agreed = state["wanted"], 0
        self._restored = [(step, summed, whole) for step, summed, whole in state["unread"]]
