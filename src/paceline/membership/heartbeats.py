"""Failure detection: the members of a generation connect along a tree and send heartbeats.

The first worker of each node watches the other workers on it, and the first worker of another node
watches that one. So a member has few connections, however many members there are. A closed
connection reveals a dead process at once; the lease reveals a silent one. Clocks are monotonic, and
a member that was itself suspended does not count that time against others.
"""

import asyncio
from collections.abc import Callable

from paceline.membership.channel import Channel
from paceline.membership.compact.missing import Absence
from paceline.membership.control import FAN_OUT, HEARTBEATS_PER_LEASE, UNREACHED, Control
from paceline.membership.messages import Goodbye, Heartbeat
from paceline.specs.runs.roster import Roster

_LATE_SECONDS = 0.02
"""If a member's own timer fires later than this, received messages may still be unread."""
_QUIET_BEATS = 2
"""A member that is silent for longer than this many heartbeats may be lost."""


def parent_of(roster: Roster, rank: int) -> int | None:
    """Return the rank above a rank in the tree; None for rank 0."""
    if rank == 0:
        return None
    nodes = roster.nodes
    firsts = [ranks[0] for ranks in nodes.values()]
    own_first = nodes[roster.members[rank].node][0]
    if rank != own_first:
        return own_first
    return firsts[(firsts.index(rank) - 1) // FAN_OUT]


def children_of(roster: Roster, rank: int) -> list[int]:
    """Return the ranks below a rank in the tree."""
    nodes = roster.nodes
    firsts = [ranks[0] for ranks in nodes.values()]
    own = nodes[roster.members[rank].node]
    if rank != own[0]:
        return []
    number = firsts.index(rank)
    return [*own[1:], *firsts[FAN_OUT * number + 1 : FAN_OUT * (number + 1) + 1]]


def watchers_of_nodes(roster: Roster) -> list[int]:
    """Return the ranks that watch other nodes than their own."""
    firsts = [ranks[0] for ranks in roster.nodes.values()]
    return firsts[: -(-(len(firsts) - 1) // FAN_OUT)]


class Heartbeats:
    """One member's heartbeats with its parent and children in one generation.

    `lost` is called with a lost member's name and the reason, `ended` when a member has left the
    generation.
    """

    def __init__(
        self,
        control: Control,
        roster: Roster,
        rank: int,
        lease_seconds: float,
        *,
        lost: Callable[[str, Absence], None],
        ended: Callable[[str], None],
    ) -> None:
        self._control, self._roster, self._lease = control, roster, lease_seconds
        self._lost, self._ended = lost, ended
        self._now = asyncio.get_running_loop().time
        parent = parent_of(roster, rank)
        self._parent = None if parent is None else roster.members[parent]
        watched = [roster.members[child].name for child in children_of(roster, rank)]
        watched += [self._parent.name] if self._parent else []
        self._heard_at = dict.fromkeys(watched, self._now())
        self._silent_since: dict[str, float] = {}
        self._channels: dict[str, Channel] = {}
        self._ticking = asyncio.create_task(self._tick())
        self._watching = asyncio.create_task(self._watch_parent())

    async def watch(self, name: str, channel: Channel) -> None:
        """Receive heartbeats from a member that has connected, until its channel closes."""
        if name not in self._heard_at:
            return
        self._channels[name] = channel
        try:
            while True:
                message = await channel.receive()
                if name not in self._heard_at:
                    continue  # this member has said goodbye, and the other one will close
                self._heard_at[name] = self._now()
                if isinstance(message, Goodbye):
                    del self._heard_at[name]
                    if not message.finished:
                        self._ended(f"worker {self._roster.rank(name)} has left its generation")
                    return
        except UNREACHED as error:
            self._lose(name, Absence(reason="process ended", detail=str(error)))
        finally:
            if self._channels.get(name) is channel:
                del self._channels[name]

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each watched member has been silent; 0 if it may be busy."""
        now, most = self._now(), _QUIET_BEATS * self._lease / HEARTBEATS_PER_LEASE
        heard_at = self._heard_at | self._silent_since
        return {name: now - at if now - at > most else 0.0 for name, at in heard_at.items()}

    def close(self, *, finished: bool) -> None:
        """Say goodbye on all channels, and let the other ends close them.

        A channel that is closed here answers a heartbeat under way by a reset, which can overtake
        the goodbye: the other end would take this process for dead.
        """
        for channel in self._channels.values():
            channel.send(Goodbye(finished=finished))
            channel.finish()
            asyncio.get_running_loop().call_later(self._lease, channel.close)
        self._ticking.cancel()
        if self._parent is None or self._parent.name not in self._channels:
            self._watching.cancel()
        self._heard_at.clear()

    async def _watch_parent(self) -> None:
        if self._parent is None:
            return
        name = self._parent.name
        try:
            channel = await self._control.connect(self._parent, "watch", self._lease)
        except UNREACHED as error:
            self._lose(name, Absence(reason="unreachable", detail=str(error)))
            return
        try:
            await self.watch(name, channel)
        finally:
            channel.close()

    async def _tick(self) -> None:
        pause = self._lease / HEARTBEATS_PER_LEASE
        send_at = self._now() + pause
        while True:
            leases_end = [at + self._lease for at in self._heard_at.values()]
            wake_at = min([send_at, *leases_end])
            await asyncio.sleep(max(0.0, wake_at - self._now()))
            now = self._now()
            if now >= send_at:
                send_at = now + pause
                for channel in self._channels.values():
                    channel.send(Heartbeat())
            if now - wake_at > _LATE_SECONDS:  # heartbeats that arrived meanwhile are still unread
                for name in self._heard_at:
                    self._heard_at[name] += now - wake_at
            for name, at in list(self._heard_at.items()):
                if now >= at + self._lease:
                    self._lose(name, Absence(reason="silent", detail=f"for {now - at:.1f} s"))

    def _lose(self, name: str, why: Absence) -> None:
        heard_at = self._heard_at.pop(name, None)
        if heard_at is None:
            return
        if why.reason == "silent":
            self._silent_since[name] = heard_at
        self._lost(name, why)
