"""Two generations never get on beside each other, whatever is lost, late or in another order."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.membership.compact.answers import grouped, ungrouped
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.consensus import Acceptor, AcceptorState, next_roster
from paceline.membership.messages import Reply, Vote
from paceline.specs.runs.roster import Member, Roster


def member(name: str) -> Member:
    return Member(name=name, node=name, address="10.0.0.1", port=1)


def roster_of(*names: str, generation: int = 0) -> Roster:
    return Roster(generation=generation, members=tuple(map(member, names)))


def names(roster: Roster) -> list[str]:
    return [each.name for each in roster.members]


@dataclass
class Proposed:
    """A roster on its way to its members, with the versions that it rests on."""

    roster: Roster
    versions: dict[str, int]
    accepted_by: set[str] = field(default_factory=set)


@dataclass
class World:
    """Members, and rosters that are proposed to them at any time, by anybody."""

    acceptors: dict[str, Acceptor]
    proposed: list[Proposed] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    def heard(self, some: list[str]) -> dict[str, AcceptorState]:
        return {name: self.acceptors[name].state for name in some if name not in self.dead}

    def propose(self, ready: dict[str, AcceptorState], newcomer: str | None) -> None:
        joining = [member(newcomer)] if newcomer else []
        dead = {name: self.acceptors[name].state for name in self.dead}
        roster = next_roster(ready, joining, dead) if ready else None
        if roster is not None:
            versions = {name: standing.version for name, standing in ready.items()}
            self.proposed.append(Proposed(roster, versions))

    def deliver(self, number: int, some: set[str], *, answered: bool) -> None:
        """Deliver a proposal to a subtree, whose votes arrive together or not at all."""
        if not self.proposed:
            return
        one = self.proposed[number % len(self.proposed)]
        votes: dict[str, Reply] = {}
        for name in (some - self.dead) & set(names(one.roster)):
            if name not in self.acceptors:  # it comes new: nothing holds it back
                self.acceptors[name] = Acceptor(one.roster.model_copy(update={"generation": -1}))
            accepted = self.acceptors[name].accept(one.roster, one.versions.get(name, 0))
            votes[name] = Vote(yes=accepted)
        if answered:
            book = RosterBook()
            digest = book.add(one.roster)
            counted = ungrouped(grouped(votes, book, digest), book, digest, some)
            yes = {name for name, vote in counted.items() if vote == Vote(yes=True)}
            assert yes <= {name for name in some if self.follows(name) == one.roster}
            one.accepted_by |= yes

    def follows(self, name: str) -> Roster | None:
        if name not in self.acceptors or name in self.dead:
            return None
        standing = self.acceptors[name].state
        return standing.accepted or standing.begun

    def begin(self, number: int, name: str) -> None:
        if not self.proposed:
            return
        one = self.proposed[number % len(self.proposed)]
        if one.accepted_by == set(names(one.roster)) and name in one.accepted_by - self.dead:
            self.acceptors[name].begin(one.roster)

    def getting_on(self, first: Roster) -> list[Roster]:
        """Rosters to which all their members hold."""

        proposed = (one.roster for one in self.proposed)
        every = {(each.generation, *names(each)): each for each in [first, *proposed]}
        return [
            each
            for each in every.values()
            if all(self.follows(name) == each for name in names(each))
        ]


@pytest.mark.slow
@given(data=st.data(), size=st.integers(2, 6))
@settings(max_examples=200, deadline=None)
def test_never_two_at_a_time(data: st.DataObject, size: int) -> None:
    everybody = [f"w{rank}" for rank in range(size)]
    first = roster_of(*everybody)
    world = World({name: Acceptor(first) for name in everybody})
    stale: list[dict[str, AcceptorState]] = []
    for number in range(40):
        anybody = st.sampled_from(sorted(world.acceptors))
        some = data.draw(st.lists(anybody, min_size=1, unique=True))
        match data.draw(st.sampled_from(["hear", "propose", "deliver", "deliver", "begin", "die"])):
            case "hear":
                stale.append(world.heard(some))
            case "propose":
                versions = data.draw(st.sampled_from([*stale, world.heard(some)]))
                world.propose(versions, f"new{number}" if data.draw(st.booleans()) else None)
            case "deliver":
                at = data.draw(st.integers(0, 9))
                subtree = {*some, f"new{data.draw(st.integers(0, number))}"}
                world.deliver(at, subtree, answered=data.draw(st.booleans()))
            case "begin":
                at = data.draw(st.integers(0, 9))
                for name in some:
                    world.begin(at, name)
            case "die":
                world.dead |= set(some[:1])
        assert len(world.getting_on(first)) <= 1


def standing(begun: Roster, accepted: Roster | None = None, version: int = 0) -> AcceptorState:
    return AcceptorState(begun, accepted, version)


def test_the_larger_side_of_a_cut_goes_on() -> None:
    begun = roster_of(*"abcdefgh")
    larger = next_roster({name: standing(begun) for name in "bcdeh"}, [], {})
    assert larger == roster_of(*"bcdeh", generation=1)
    assert next_roster({name: standing(begun) for name in "afg"}, [], {}) is None
    assert next_roster({name: standing(begun) for name in "bcde"}, [], {}) is None, "a half"
    half = next_roster({name: standing(begun) for name in "aefg"}, [], {})
    assert half == roster_of(*"aefg", generation=1), "a half with the first member"


def test_the_dead_do_not_count() -> None:
    begun = roster_of("a", "b")
    assert next_roster({"b": standing(begun)}, [], {}) is None
    assert next_roster({"b": standing(begun)}, [], {"a": standing(begun)}) == roster_of(
        "b", generation=1
    )


def test_what_may_have_begun_counts() -> None:
    begun, small = roster_of(*"abcde"), roster_of(*"abc", generation=1)
    ready = {"c": standing(begun, small, 1), "d": standing(begun), "e": standing(begun)}
    assert next_roster(ready, [], {}) is None, "a and b may be going on with c's consent"
    both = {**ready, "b": standing(begun, small, 1)}
    assert next_roster(both, [], {}) == roster_of(*"bcde", generation=2)


def test_who_comes_new_stands_behind() -> None:
    begun = roster_of("a", "b", "c")
    ready = {name: standing(begun) for name in "abc"}
    assert next_roster(ready, [member("d")], {}) == roster_of(*"abcd", generation=1)


def test_a_word_holds_until_something_is_accepted() -> None:
    acceptor = Acceptor(roster_of("a", "b", "c"))
    assert acceptor.accept(roster_of("a", "b", generation=1), 0)
    assert not acceptor.accept(roster_of("a", "c", generation=2), 0), "it rests on an older word"
    assert not acceptor.begin(roster_of("a", "c", generation=2))
    assert acceptor.begin(roster_of("a", "b", generation=1))
    assert not acceptor.accept(roster_of("a", generation=1), 1), "not a later generation"
