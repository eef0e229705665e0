"""Which generations of a run's workers began with a start of their processes, and which inside of
them."""

from dataclasses import dataclass, field

from paceline.specs import AnyEvent, Regrouped


@dataclass
class Generations:
    """The generations that have been heard of, in whatever order."""

    _regrouped: dict[int, bool] = field(default_factory=lambda: {0: False})
    """By number, whether it began with a regroup."""

    def take(self, event: AnyEvent) -> None:
        """Note what an event says of its generation."""
        if isinstance(event, Regrouped):
            self._regrouped[event.generation] = True
        elif event.generation not in self._regrouped:
            self._regrouped[event.generation] = False

    def restarts(self, generation: int) -> int:
        """How often the run had been started again when a generation began.

        A start that never said anything has left its number out, and counts; a regroup that came to
        nothing has done so, too, but does not.
        """
        found, before = 0, 0
        for number in sorted(self._regrouped):
            if number > generation:
                break
            found += 0 if self._regrouped[number] else number - before
            before = number
        return found

    def last(self, generation: int) -> int:
        """The newest generation of the same start: what is said of the start is said of it."""
        newest = generation
        for number in sorted(self._regrouped):
            if number > generation and not self._regrouped[number]:
                break
            newest = max(newest, number)
        return newest
