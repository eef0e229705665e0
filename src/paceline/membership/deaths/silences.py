"""How long to wait for a member of a node that has been silent already.

Only the members that watch a node hear its silence. They report it, so that nobody waits another
lease for each of its workers: the lease of a silent node runs from its last sign of life.

A kernel accepts connections also while its processes wait for a core. So a new connection shows
that a node lives, however late its workers answer: one that is behind a network that works again,
or on a busy machine, is not taken for lost. Only a worker that its own node's members do not hear
either is not waited for.
"""

from collections.abc import Callable, Iterable, Mapping

from paceline.membership.compact.missing import Quiet, Silence
from paceline.specs.runs.roster import Member, Roster

_SHORTEST_DIVISOR = 8
"""A member on a silent node gets at least a lease divided by this to answer."""
_REACHED_DIVISOR = 2
"""One that was itself silent, and whose node accepts a connection, gets a lease divided by this."""


class Silences:
    """What a member knows about silent nodes when its generation has ended."""

    def __init__(self, me: Member, lease_seconds: float, now: Callable[[], float]) -> None:
        self._me, self._lease, self._now = me, lease_seconds, now
        self._heard_at: dict[str, float] = {}
        """By member: when it was last heard, by this member's clock."""
        self._nodes: dict[str, float] = {}
        """By node: when any of its silent members was last heard."""
        self._hung: set[str] = set()
        """Silent members that members of their own node do not hear."""
        self._reached_at: dict[str, float] = {}
        """By member: when its node's kernel accepted a connection to it."""
        self._living: set[str] = set()
        """Members that this one hears, and nodes that answer."""

    def report(self) -> Quiet:
        """Return the silent members, by name."""
        now = self._now()
        return {
            name: Silence(seconds=round(now - at, 2), hung=name in self._hung)
            for name, at in self._heard_at.items()
        }

    def note_unanswered(self, roster: Roster, names: Iterable[str], seconds: float) -> None:
        """Note that members of a roster did not answer for some seconds."""
        self.note(roster, dict.fromkeys(names, Silence(seconds=seconds)))

    def note(self, roster: Roster, quiet: Mapping[str, Silence]) -> None:
        """Note silent members of a roster."""
        now = self._now()
        for name, silence in quiet.items():
            rank = roster.rank(name)
            if rank is None or name in self._living:
                continue
            if silence.hung:
                self._hung.add(name)
            node, at = roster.members[rank].node, now - silence.seconds
            self._heard_at[name] = max(at, self._heard_at.get(name, at))
            self._nodes[node] = max(at, self._nodes.get(node, at))

    def note_life(self, member: Member) -> None:
        """Note that this member hears another one, whatever others report of it or its node."""
        self._heard_at.pop(member.name, None)
        self._living |= {member.name, member.node}

    def note_reached(self, member: Member) -> None:
        """Note that the kernel of a member's node has accepted a connection."""
        self._living.add(member.node)
        self._reached_at[member.name] = self._now()

    def is_hung(self, name: str) -> bool:
        """Return whether members of a silent member's own node do not hear it either."""
        return name in self._hung and name in self._heard_at

    def lives(self, node: str) -> bool:
        """Return whether a node answers, whatever others report of it."""
        return node in self._living or node == self._me.node

    def is_suspect(self, member: Member) -> bool:
        """Return whether a member or its node has been silent, and has not answered since."""
        if member.name in self._heard_at:
            return True
        return member.node in self._nodes and not self.lives(member.node)

    def is_spared(self, member: Member) -> bool:
        """Return whether a member was suspected for its node's silence, but the node lives."""
        return member.node in self._nodes and not self.is_suspect(member)

    def patience_seconds(self, member: Member, since: float) -> float:
        """Return how long to wait for a member that was asked at this time."""
        if not self.is_suspect(member):
            return self._lease
        heard_at = self._heard_at.get(member.name, self._nodes[member.node])
        seconds = max(self._lease / _SHORTEST_DIVISOR, self._lease - (since - heard_at))
        reached_at = self._reached_at.get(member.name)
        if reached_at is None or member.name in self._hung:
            return seconds
        return max(seconds, reached_at - since + self._lease / _REACHED_DIVISOR)
