"""Members that were reported as lost and answered after all."""

from collections import Counter
from collections.abc import Callable, Iterable

_SECONDS, _MOST = 20.0, 3


class Clearances:
    """In which generations members were cleared of being lost, for as long as it counts.

    A regroup that takes several attempts hears the same reports for each: they count once.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._cleared_at: dict[tuple[str, int], float] = {}
        """By member and generation."""

    def add(self, names: Iterable[str], generation: int) -> None:
        """Note that members that were reported as lost in a generation have answered."""
        now = self._now()
        self._cleared_at |= dict.fromkeys(((name, generation) for name in names), now)
        self._cleared_at = {
            each: at for each, at in self._cleared_at.items() if at > now - _SECONDS
        }

    def exhausted(self) -> set[str]:
        """Return the members that were cleared so often that the next report counts."""
        since = self._now() - _SECONDS
        counts = Counter(name for (name, _), at in self._cleared_at.items() if at > since)
        return {name for name, count in counts.items() if count >= _MOST}
