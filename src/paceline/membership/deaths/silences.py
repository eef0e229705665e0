"""How long to wait for a member of a node that has been silent already.

Only the members that watch a node hear its silence. They report it, so that nobody waits another
lease for each of its workers: the lease of a silent node runs from its last sign of life.
"""

from collections.abc import Callable, Mapping

from paceline.specs.runs.roster import Member, Roster

_SHORTEST_DIVISOR = 8
"""A member on a silent node gets at least a lease divided by this to answer."""


class Silences:
    """What a member knows about silent nodes when its generation has ended."""

    def __init__(self, me: Member, lease_seconds: float, now: Callable[[], float]) -> None:
        self._me, self._lease, self._now = me, lease_seconds, now
        self._heard_at: dict[str, float] = {}
        """By member: when it was last heard, by this member's clock."""
        self._nodes: dict[str, float] = {}
        """By node: when any of its silent members was last heard."""
        self._living: set[str] = set()
        """Members that this one hears, and the nodes that they are on."""

    def report(self) -> dict[str, float]:
        """Return for how many seconds members have been silent, by name."""
        now = self._now()
        return {name: round(now - at, 2) for name, at in self._heard_at.items()}

    def note(self, roster: Roster, seconds: Mapping[str, float]) -> None:
        """Note for how many seconds members of a roster have been silent."""
        now = self._now()
        for name, silent_seconds in seconds.items():
            rank = roster.rank(name)
            if rank is None or name in self._living:
                continue
            node, at = roster.members[rank].node, now - silent_seconds
            self._heard_at[name] = max(at, self._heard_at.get(name, at))
            self._nodes[node] = max(at, self._nodes.get(node, at))

    def note_life(self, member: Member) -> None:
        """Note that this member hears another one, whatever others report of it or its node."""
        self._heard_at.pop(member.name, None)
        self._living |= {member.name, member.node}

    def is_suspect(self, member: Member) -> bool:
        """Return whether a member or its node has been silent, and has not answered since."""
        if member.name in self._heard_at:
            return True
        lives = member.node in self._living or member.node == self._me.node
        return member.node in self._nodes and not lives

    def is_spared(self, member: Member) -> bool:
        """Return whether a member was suspected for its node's silence, but the node lives."""
        return member.node in self._nodes and not self.is_suspect(member)

    def patience_seconds(self, member: Member, since: float) -> float:
        """Return how long to wait for a member that was asked at this time."""
        if not self.is_suspect(member):
            return self._lease
        heard_at = self._heard_at.get(member.name, self._nodes[member.node])
        return max(self._lease / _SHORTEST_DIVISOR, self._lease - (since - heard_at))
