"""Shared code for tools with metrics that can only move forward in steps."""

import uuid
from collections.abc import Iterator, Sequence

from paceline.observe.digest import Observation
from paceline.specs import Run

MOST_NOTES = 50


def identity(run: Run) -> str:
    """Return a stable identifier of the run, unique among runs."""
    return uuid.uuid5(uuid.NAMESPACE_URL, run.path.as_uri()).hex


class Once:
    """Lets each step's metrics through once; of a repeated step, the first."""

    def __init__(self, last_step: int = 0) -> None:
        self._last_step = last_step
        """The last step that the tool has."""
        self._new = False
        self._notes: list[str] = []

    @property
    def notes(self) -> str:
        """The most recent event notes, one per line."""
        return "\n".join(self._notes[-MOST_NOTES:])

    def new(self, news: Sequence[Observation]) -> Iterator[Observation]:
        """Yield the observations that the tool does not have yet."""
        for seen in news:
            if "step" in seen.figures:  # further metrics of the same step follow
                self._new = seen.step > self._last_step
                self._last_step = max(self._last_step, seen.step)
            if seen.note:
                self._notes.append(f"step {seen.step}: {seen.note}")
            if self._new or seen.kind != "figures":
                yield seen
