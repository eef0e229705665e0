"""What a listener is."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from paceline.observe.digest import Observation
from paceline.specs import Run


class Listener(Protocol):
    """Is told of a run, from its beginning, also where it was told of it before.

    Its package is loaded when it is made, not before: a name can be checked without that.
    """

    package: ClassVar[str]
    """What must be installed: by `pip install "paceline[NAME]"`."""
    where: str
    """Where its user finds what it was told."""

    def __init__(self, run: Run, place: str | None) -> None: ...

    @staticmethod
    def check(place: str | None) -> None:
        """Raise where it cannot be made for such a place."""

    def take(self, news: Sequence[Observation]) -> None:
        """What is new, in its order."""

    def close(self) -> None:
        """Nothing more will come; what was told is kept."""
