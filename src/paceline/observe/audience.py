"""All listeners of a run: opened by name, and isolated from each other's failures."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from paceline.observe.digest import Digest
from paceline.observe.listener import LISTENERS, Listener
from paceline.specs import AnyEvent, PacelineError, Run


def check_listener(words: str) -> None:
    """Reject an unknown or unusable `NAME[:PLACE]`, before a run is started for it."""
    name, place = _divided(words)
    kind = LISTENERS.get(name)
    if find_spec(kind.package) is None:
        extra = f"paceline[{name}]" if name in LISTENERS.builtin else kind.package
        raise PacelineError(
            f"--to {name} needs the package {kind.package}, which is not installed",
            fix=f'pip install "{extra}"',
        )
    kind.check(place)


class Audience:
    """The listeners of one run; one that fails is reported once and then dropped."""

    def __init__(self, run: Run, to: Sequence[str], say: Callable[[str], None]) -> None:
        for words in to:
            check_listener(words)
        self._say = say
        self._digest = Digest()
        self._listeners: dict[str, Listener] = {}
        self.failed = False
        """Whether one of them has failed."""
        for words in to:
            name, place = _divided(words)
            try:
                self._listeners[words] = LISTENERS.get(name).open(run, place)
            except Exception as error:
                self._failed(words, error)
            else:
                say(f"{name}: {self._listeners[words].where}")

    @property
    def empty(self) -> bool:
        """Whether no listener is left."""
        return not self._listeners

    def forward(self, events: Sequence[AnyEvent]) -> None:
        """Forward events that were read since the last call."""
        news = self._digest.take(events)
        if news:
            self._each(lambda listener: listener.take(news))

    def close(self) -> None:
        """Close all listeners."""
        self._each(lambda listener: listener.close())

    def _each(self, do: Callable[[Listener], None]) -> None:
        for words, listener in list(self._listeners.items()):
            try:
                do(listener)
            except Exception as error:  # a library may raise anything
                del self._listeners[words]
                self._failed(words, error)

    def _failed(self, words: str, error: Exception) -> None:
        self.failed = True
        text = (
            str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
        )
        self._say(f"--to {words} failed and was dropped: {' '.join(text.split())}")


def _divided(words: str) -> tuple[str, str | None]:
    name, _, place = words.partition(":")
    return name, place or None
