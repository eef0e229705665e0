"""The leader's queue of processes that wait to join the training."""

import asyncio

from paceline.membership.messages import Join
from paceline.specs.runs.roster import Roster


class JoinQueue:
    """Requests to join, and members that may retire because a waiting process replaces them."""

    def __init__(self, expiry_seconds: float) -> None:
        self._expiry_seconds = expiry_seconds
        """A request expires if it is not repeated for this long."""
        self._requests: dict[str, tuple[Join, float]] = {}
        self._retiring: set[str] = set()

    def add(self, join: Join) -> None:
        """Add or renew a request."""
        self._requests[join.member.name] = join, asyncio.get_running_loop().time()

    def drop(self, name: str) -> None:
        """Remove the request of a process that could not be reached."""
        self._requests.pop(name, None)

    @property
    def current(self) -> list[Join]:
        """The requests that have not expired."""
        now = asyncio.get_running_loop().time()
        return [join for join, at in self._requests.values() if now - at < self._expiry_seconds]

    def __bool__(self) -> bool:
        """Return whether there is any request, expired or not; safe from other threads."""
        return bool(self._requests)

    def without(self, roster: Roster) -> "JoinQueue":
        """Return the requests that have not expired, of processes that are not in a roster."""
        rest = JoinQueue(self._expiry_seconds)
        names = {join.member.name for join in self.current} - set(roster.names)
        rest._requests = {name: each for name, each in self._requests.items() if name in names}
        return rest

    def may_retire(self, name: str) -> bool:
        """Return whether a member may exit because a waiting process can replace it."""
        if len(self.current) <= len(self._retiring - {name}):
            return False
        self._retiring.add(name)
        return True
