"""Consensus on the next roster, safe against the loss of any member at any time.

A generation begins when all its members have accepted its roster. It makes progress only while all
of them follow it: a step needs all members. A member follows one roster at a time. So two
generations never make progress side by side if any two rosters that may have begun share a member.
Therefore a roster has

- a majority of the last roster that is known to have begun, and
- a majority of each later roster that some member accepted, which may have begun unnoticed,

where half is enough if it includes the first member. So the smaller side of a network partition
begins nothing, and of two equal sides only one does.

Members known to be dead do not count, so that a node that loses half of its workers can continue. A
dead member may have voted just before, and the roster with its vote may have begun. So it is known
to be dead only together with its last state (`deaths/last_votes.py`), which counts like the report
of a member that will accept nothing any more: a roster that it accepted may have begun.

A member's state is valid until it accepts or begins something: it refuses a proposal that is based
on an older version of its state. Once a generation has begun, its training continues: a later one
needs a report that the member makes after it has left that training, too. This module does not
communicate or wait.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paceline.specs.runs.roster import Member, Roster


@dataclass(frozen=True)
class AcceptorState:
    """The state that an acceptor reports when its member is ready for another generation."""

    begun: Roster
    """The last roster that this member knows to have begun."""
    accepted: Roster | None
    """The roster that this member has accepted since, if any."""
    version: int
    """Number of changes of this state."""

    @property
    def generation(self) -> int:
        """The latest generation that this member knows of."""
        return self.begun.generation if self.accepted is None else self.accepted.generation


class Acceptor:
    """A member's vote on proposals.

    A restarted process is a new member, so this state need not survive the process.
    """

    def __init__(self, begun: Roster) -> None:
        self.state = AcceptorState(begun, None, 0)

    @classmethod
    def of_newcomer(cls, member: Member) -> "Acceptor":
        """Return the acceptor of a process that has been in no generation yet."""
        return cls(Roster(generation=-1, members=(member,)))

    def accept(self, roster: Roster, version: int) -> bool:
        """Accept a roster based on this version of the state; return False to refuse it."""
        now = self.state
        if version != now.version or roster.generation <= now.generation:
            return False
        self.state = AcceptorState(now.begun, roster, now.version + 1)
        return True

    def begin(self, roster: Roster) -> bool:
        """Begin a roster that all members accepted; return False if it is not the accepted one."""
        now = self.state
        if now.accepted != roster:
            return False
        self.state = AcceptorState(roster, None, now.version + 1)
        return True


def next_roster(
    ready: Mapping[str, AcceptorState],
    joining: Collection[Member],
    dead: Mapping[str, AcceptorState],
) -> Roster | None:
    """Return the roster that the ready members may propose; None if they are too few.

    `dead`: the last states of members known to be dead.
    Members of the last generation keep their order; new members come after them.
    """
    states = [*ready.values(), *dead.values()]
    begun = max((each.begun for each in ready.values()), key=lambda roster: roster.generation)
    known = {id(roster): roster for each in states for roster in (each.begun, each.accepted)}
    later = [
        each for each in known.values() if each is not None and each.generation > begun.generation
    ]
    if not all(_has_majority(ready, roster, dead) for roster in (begun, *later)):
        return None
    members = {each.name: each for each in begun.members if each.name in ready}
    for roster in later:
        members |= {each.name: each for each in roster.members if each.name in ready}
    members |= {each.name: each for each in joining}
    generation = 1 + max(each.generation for each in states)
    return Roster(generation=generation, members=tuple(members.values()))


def _has_majority(ready: Collection[str], roster: Roster, dead: Collection[str]) -> bool:
    living = [name for name in roster.names if name not in dead]
    if not living:
        return True
    twice = 2 * sum(name in ready for name in living)
    return twice > len(living) or (twice == len(living) and living[0] in ready)
