"""What tools have in common whose curves only go forward."""

import uuid
from collections.abc import Iterator, Sequence

from paceline.observe.digest import Observation
from paceline.specs import Run

MOST_NOTES = 50


def identity(run: Run) -> str:
    """The same for a run whenever it is followed, another for every other run."""
    return uuid.uuid5(uuid.NAMESPACE_URL, run.path.as_uri()).hex


class Once:
    """Lets every step's figures through once: of steps that are taken again, the first."""

    def __init__(self, told: int = 0) -> None:
        self._told = told
        """The last step that the tool knows of."""
        self._new = False
        self._notes: list[str] = []

    @property
    def notes(self) -> str:
        """What happened up to now, the last of it."""
        return "\n".join(self._notes[-MOST_NOTES:])

    def new(self, news: Sequence[Observation]) -> Iterator[Observation]:
        """What the tool does not know yet."""
        for seen in news:
            if "step" in seen.figures:  # what else is known of the step follows
                self._new = seen.step > self._told
                self._told = max(self._told, seen.step)
            if seen.note:
                self._notes.append(f"step {seen.step}: {seen.note}")
            if self._new or seen.kind != "figures":
                yield seen
