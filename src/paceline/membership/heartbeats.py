"""Who is heard: the members of a generation hold connections along a tree and beat.

A node's workers are watched by the first of them, and the first of each node by that of another: a
member holds a few connections, whatever the number of all. A process that dies is noticed at once,
by the end of its connections; one that is silent after a lease. Clocks are monotonic, and a member
that stood still itself accuses nobody.
"""

import asyncio
from collections.abc import Callable

from paceline.membership.control import BEATS_PER_LEASE, FAN_OUT, UNREACHED, Control
from paceline.membership.frames import Line
from paceline.membership.messages import PROCESS_GONE, Beat, Bye
from paceline.specs.runs.roster import Roster

_LATE_SECONDS = 0.02
"""A member whose own processor was away for longer has not yet heard what the others said."""


def parent_of(roster: Roster, rank: int) -> int | None:
    """The rank that watches a rank and is watched by it; None for rank 0."""
    if rank == 0:
        return None
    firsts = [ranks[0] for ranks in roster.nodes.values()]
    own_first = roster.nodes[roster.members[rank].node][0]
    if rank != own_first:
        return own_first
    return firsts[(firsts.index(rank) - 1) // FAN_OUT]


def children_of(roster: Roster, rank: int) -> list[int]:
    """The ranks that a rank watches."""
    nodes = roster.nodes
    firsts = [ranks[0] for ranks in nodes.values()]
    own = nodes[roster.members[rank].node]
    if rank != own[0]:
        return []
    number = firsts.index(rank)
    return [*own[1:], *firsts[FAN_OUT * number + 1 : FAN_OUT * (number + 1) + 1]]


class Watch:
    """One member's connections in one generation."""

    def __init__(
        self,
        control: Control,
        roster: Roster,
        rank: int,
        lease_seconds: float,
        *,
        lost: Callable[[str, str], None],
        ended: Callable[[str], None],
    ) -> None:
        self._control, self._roster, self._lease = control, roster, lease_seconds
        self._lost, self._ended = lost, ended
        self._now = asyncio.get_running_loop().time
        parent = parent_of(roster, rank)
        self._parent = None if parent is None else roster.members[parent]
        near = [roster.members[child].name for child in children_of(roster, rank)]
        near += [self._parent.name] if self._parent else []
        self._heard_at = dict.fromkeys(near, self._now())
        self._lines: dict[str, Line] = {}
        self._tasks = {asyncio.create_task(self._tick())}
        if self._parent:
            self._tasks.add(asyncio.create_task(self._call(self._parent.name)))

    async def serve(self, name: str, line: Line) -> None:
        """Listen to a member that has connected, until it goes."""
        if name in self._heard_at:
            await self._listen(name, line)

    def close(self, *, finished: bool) -> None:
        """Leave in good order."""
        for line in self._lines.values():
            line.say(Bye(finished=finished))
            line.close()
        for task in self._tasks:
            task.cancel()
        self._heard_at.clear()

    async def _call(self, name: str) -> None:
        assert self._parent is not None
        try:
            line = await self._control.line(self._parent, "watch", self._lease)
        except UNREACHED as error:
            self._lose(name, f"it cannot be reached: {error or 'no answer'}")
            return
        try:
            await self._listen(name, line)
        finally:
            line.close()

    async def _listen(self, name: str, line: Line) -> None:
        self._lines[name] = line
        try:
            while name in self._heard_at:
                message = await line.hear()
                if name not in self._heard_at:
                    return
                self._heard_at[name] = self._now()
                if isinstance(message, Bye):
                    del self._heard_at[name]
                    if not message.finished:
                        self._ended(f"worker {self._roster.rank(name)} has left its generation")
        except UNREACHED as error:
            self._lose(name, f"{PROCESS_GONE} ({error})")
        finally:
            if self._lines.get(name) is line:
                del self._lines[name]

    async def _tick(self) -> None:
        pause = self._lease / BEATS_PER_LEASE
        beat_at = self._now() + pause
        while True:
            ends_at = [at + self._lease for at in self._heard_at.values()]
            wake_at = min([beat_at, *ends_at])
            await asyncio.sleep(max(0.0, wake_at - self._now()))
            now = self._now()
            if now >= beat_at:
                beat_at = now + pause
                for line in self._lines.values():
                    line.say(Beat())
            if now - wake_at > _LATE_SECONDS:  # what was said meanwhile is still to be read
                for name in self._heard_at:
                    self._heard_at[name] += now - wake_at
            for name, at in list(self._heard_at.items()):
                if now >= at + self._lease:
                    self._lose(name, f"nothing was heard of it for {now - at:.1f} s")

    def _lose(self, name: str, why: str) -> None:
        if self._heard_at.pop(name, None) is not None:
            self._lost(name, why)
