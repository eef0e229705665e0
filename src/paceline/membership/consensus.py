"""Who is in the next generation, although anybody may be lost while that is agreed on.

A generation begins when everybody in it has accepted its roster, and it gets on only as long as all
of them do: one step takes all its members. A member has accepted one roster at a time. So for two
generations never to get on beside each other, it is enough that any roster shares a member with any
other that may have begun. For that, a roster has

- more than half of the members of the last one that is known to have begun, and
- more than half of each that somebody accepted after it, which may have begun unknown to others,

where one half is enough if the first member is in it. Members known to be dead do not count:
whoever shares a node with one sees to it. So the smaller side of a cut begins nothing, and of two
that are as large only one begins.

What a member says about itself holds until it accepts something: a roster that rests on older word
is refused. Nothing here talks or waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paceline.specs.runs.roster import Member, Roster


@dataclass(frozen=True)
class Standing:
    """What a member says about itself when it is ready for another generation."""

    begun: Roster
    """The last that it knows to have begun."""
    accepted: Roster | None
    """What it has accepted after that."""
    word: int
    """How often it has accepted something."""

    @property
    def generation(self) -> int:
        """The latest that it knows of."""
        return self.begun.generation if self.accepted is None else self.accepted.generation


class Seat:
    """A member's own part in what is agreed on. A process that is started in its place is another
    member, so what this one has accepted need not outlive it."""

    def __init__(self, begun: Roster) -> None:
        self.standing = Standing(begun, None, 0)

    @classmethod
    def of_newcomer(cls, member: Member) -> "Seat":
        """The seat of a process that has been in no generation yet."""
        return cls(Roster(generation=-1, members=(member,)))

    def accept(self, roster: Roster, word: int) -> bool:
        """Whether this member accepts a roster that rests on its word."""
        now = self.standing
        if word != now.word or roster.generation <= now.generation:
            return False
        self.standing = Standing(now.begun, roster, now.word + 1)
        return True

    def begin(self, roster: Roster) -> bool:
        """All in a roster have accepted it; whether this member still has."""
        now = self.standing
        if now.accepted != roster:
            return False
        self.standing = Standing(roster, None, now.word)
        return True


def next_roster(
    ready: Mapping[str, Standing], joining: Collection[Member], dead: Collection[str]
) -> Roster | None:
    """The roster that those who are ready may propose; None where they are too few.

    Those of the last generation keep their order; who comes new stands behind them.
    """
    begun = max((each.begun for each in ready.values()), key=lambda roster: roster.generation)
    later = [
        each.accepted
        for each in ready.values()
        if each.accepted is not None and each.accepted.generation > begun.generation
    ]
    if not all(_has_most(ready, roster, dead) for roster in (begun, *later)):
        return None
    members = {each.name: each for each in begun.members if each.name in ready}
    for roster in later:
        members |= {each.name: each for each in roster.members if each.name in ready}
    members |= {each.name: each for each in joining}
    generation = 1 + max(each.generation for each in ready.values())
    return Roster(generation=generation, members=tuple(members.values()))


def _has_most(ready: Collection[str], roster: Roster, dead: Collection[str]) -> bool:
    living = [name for name in roster.names if name not in dead]
    if not living:
        return True
    there = 2 * sum(name in ready for name in living)
    return there > len(living) or (there == len(living) and living[0] in ready)
