"""Track which generations of workers began with a start of the run, and which with a regroup."""

from dataclasses import dataclass, field

from paceline.specs import AnyEvent, Regrouped


@dataclass
class Generations:
    """The generations seen so far, in any order."""

    _regrouped: dict[int, bool] = field(default_factory=lambda: {0: False})
    """By number, whether it began with a regroup."""

    def take(self, event: AnyEvent) -> None:
        """Record the generation of an event."""
        if isinstance(event, Regrouped):
            self._regrouped[event.generation] = True
        elif event.generation not in self._regrouped:
            self._regrouped[event.generation] = False

    def restarts(self, generation: int) -> int:
        """Return the number of restarts before a generation began.

        Numbers missing before a start belong to starts that wrote no event, and count; numbers
        missing before a regroup belong to failed regroups, and do not count.
        """
        found, before = 0, 0
        for number in sorted(self._regrouped):
            if number > generation:
                break
            found += 0 if self._regrouped[number] else number - before
            before = number
        return found

    def first(self, generation: int) -> int:
        """Return the oldest generation of the same start."""
        return max(
            (
                number
                for number, regrouped in self._regrouped.items()
                if number <= generation and not regrouped
            ),
            default=0,
        )

    def last(self, generation: int) -> int:
        """Return the newest generation of the same start; the start's last events belong to it."""
        newest = generation
        for number in sorted(self._regrouped):
            if number > generation and not self._regrouped[number]:
                break
            newest = max(newest, number)
        return newest
