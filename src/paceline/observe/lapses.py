"""Track which protections of a run are off, and since when."""

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.specs import Degraded, Protection, Restored


@dataclass(frozen=True)
class Lapse:
    """A time in which a protection was off, for a worker or a node."""

    began: Degraded
    ended: Restored | None = None
    """None if it has not ended, or ended with its generation."""

    @property
    def words(self) -> str:
        """The protection, and who lacks it."""
        who = "" if self.began.rank is None else f"worker {self.began.rank} on "
        return f"{self.began.protection}, {who}{self.began.node}"


_Key = tuple[Protection, str, int | None, int]


class Lapses:
    """The lapses of a run, from its events in the order of their times."""

    def __init__(self) -> None:
        self.open: dict[_Key, Degraded] = {}
        self._generation = self._first_of_start = 0

    def take(self, event: Degraded | Restored) -> Lapse | None:
        """Take an event; return the lapse that it begins or ends, or None if it changes nothing."""
        key = (event.protection, event.node, event.rank, event.generation)
        if isinstance(event, Degraded):
            if key in self.open or self._is_over(event):
                return None
            self.open[key] = event
            return Lapse(event)
        began = self.open.pop(key, None)
        return None if began is None else Lapse(began, event)

    def begin(self, generation: int, first_of_start: int) -> list[Lapse]:
        """Begin a generation: return the lapses of earlier workers, which end with them.

        A node's lapse lasts until the next start of the run, which `first_of_start` begins.
        """
        self._generation, self._first_of_start = generation, first_of_start
        over = [key for key, began in self.open.items() if self._is_over(began)]
        return [Lapse(self.open.pop(key)) for key in over]

    def _is_over(self, began: Degraded) -> bool:
        newest = self._first_of_start if began.rank is None else self._generation
        return began.generation < newest


def lapses_of(events: Iterable[Degraded | Restored]) -> list[Lapse]:
    """Return the lapses of a whole run, in the order of their beginnings."""
    lapses, found = Lapses(), []
    for event in sorted(events, key=lambda each: each.time):
        lapse = lapses.take(event)
        if lapse is not None and lapse.ended is not None:
            found.append(lapse)
    found += map(Lapse, lapses.open.values())
    return sorted(found, key=lambda each: each.began.time)
