"""A listener forwards a run's metrics and events to another tool; the registry of all listeners.

Listeners follow the run's folder from a process of their own, so that none of them can slow down
training or end it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.observe.digest import Observation
from paceline.specs import Run
from paceline.specs.registry import Registry


class Listener(Protocol):
    """Forwards one run, from its beginning, even if an earlier process forwarded a part of it."""

    where: str
    """Where a user finds the result: a path, a URL or a command."""

    def take(self, news: Sequence[Observation]) -> None:
        """Forward new observations, in order."""

    def close(self) -> None:
        """Complete the output; this is the last call."""


def _any_place(place: str | None) -> None:
    pass


@dataclass(frozen=True)
class ListenerKind:
    """A kind of listener, used by `--to NAME[:PLACE]`.

    A built-in kind is a file in `observe/listeners` with an instance named `LISTENER`. Another
    package adds one by an entry point of the group `paceline.listeners`.
    """

    package: str
    """Import name of the package that it needs; only `open` imports it."""
    open: Callable[[Run, str | None], Listener]
    """Open a listener for a run, at the given place or at its default."""
    check: Callable[[str | None], None] = _any_place
    """Raise `PacelineError` for an invalid place, before a run is started for it."""


LISTENERS: Registry[ListenerKind] = Registry(
    "listener",
    group="paceline.listeners",
    package="paceline.observe.listeners",
    attribute="LISTENER",
    kind=ListenerKind,
)
