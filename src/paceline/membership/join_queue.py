"""Who waits for a place in the training, as its leader knows it."""

import asyncio

from paceline.membership.messages import Join
from paceline.specs.runs.roster import Roster


class Waiting:
    """Those who have asked for a place, and who has been let go since one of them can have his."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        """Who has not asked again for so long does not wait any more."""
        self._joins: dict[str, tuple[Join, float]] = {}
        self._let_go: set[str] = set()

    def add(self, join: Join) -> None:
        """Somebody asks, for the first time or again."""
        self._joins[join.member.name] = join, asyncio.get_running_loop().time()

    def drop(self, name: str) -> None:
        """Somebody could not be reached."""
        self._joins.pop(name, None)

    @property
    def joins(self) -> list[Join]:
        """As of late."""
        now = asyncio.get_running_loop().time()
        return [join for join, at in self._joins.values() if now - at < self._patience_seconds]

    @property
    def somebody(self) -> bool:
        """Whether anybody has asked, be it long ago; for other threads."""
        return bool(self._joins)

    def without(self, roster: Roster) -> "Waiting":
        """Those who have no place in a generation."""
        rest = Waiting(self._patience_seconds)
        rest._joins = {n: each for n, each in self._joins.items() if roster.rank(n) is None}
        return rest

    def lets_go(self, name: str) -> bool:
        """Whether a member may end itself, since another can have its place."""
        if len(self.joins) <= len(self._let_go - {name}):
            return False
        self._let_go.add(name)
        return True
