"""All listeners of a run: made by their names, told together, each failing for itself."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from paceline.observe.digest import Digest
from paceline.observe.listeners.listener import Listener
from paceline.observe.listeners.mlflow import Mlflow
from paceline.observe.listeners.prometheus import Prometheus
from paceline.observe.listeners.tensorboard import TensorBoard
from paceline.observe.listeners.wandb import Wandb
from paceline.specs import AnyEvent, PacelineError, Run

LISTENERS: dict[str, type[Listener]] = {
    "prometheus": Prometheus,
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "wandb": Wandb,
}


def check_listener(words: str) -> None:
    """Refuse `NAME[:PLACE]` where nothing could listen so: before a run is started for it."""
    name, place = _divided(words)
    if name not in LISTENERS:
        raise PacelineError(
            f"--to {words} names no listener that is known",
            fix=f"use one of: {', '.join(LISTENERS)}",
        )
    kind = LISTENERS[name]
    if find_spec(kind.package) is None:
        raise PacelineError(
            f"--to {name} needs the package {kind.package}, which is not installed",
            fix=f'pip install "paceline[{name}]"',
        )
    kind.check(place)


class Audience:
    """The listeners of one run; one that fails is named once and told nothing more."""

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
                self._listeners[words] = LISTENERS[name](run, place)
            except Exception as error:
                self._failed(words, error)
            else:
                say(f"{name}: {self._listeners[words].where}")

    @property
    def empty(self) -> bool:
        """Whether nobody listens any more."""
        return not self._listeners

    def tell(self, events: Sequence[AnyEvent]) -> None:
        """What has been read of the run since the last time."""
        news = self._digest.take(events)
        if news:
            self._each(lambda listener: listener.take(news))

    def close(self) -> None:
        """Nothing more will come."""
        self._each(lambda listener: listener.close())

    def _each(self, do: Callable[[Listener], None]) -> None:
        for words, listener in list(self._listeners.items()):
            try:
                do(listener)
            except Exception as error:  # whatever another's library raises
                del self._listeners[words]
                self._failed(words, error)

    def _failed(self, words: str, error: Exception) -> None:
        self.failed = True
        text = (
            str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
        )
        self._say(f"--to {words} failed and is told nothing more: {' '.join(text.split())}")


def _divided(words: str) -> tuple[str, str | None]:
    name, _, place = words.partition(":")
    return name, place or None
