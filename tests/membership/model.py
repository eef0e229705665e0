"""An explicit-state model of consensus on rosters, with the real `Acceptor` and `next_roster`.

The model has no clock. At any time, any leader may propose a roster based on any states that
members had, now or earlier, so reports may be lost or late in any combination. A proposal may reach
each of its members at any time or never, so a cut is a proposal that does not reach the other side.
A member may crash at any time, and a leader may know of it, with the member's last vote, or not.
All orders of these events are explored breadth-first, up to a number of proposals and crashes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations, product
from typing import NamedTuple, TypeVar

from paceline.membership.consensus import Acceptor, AcceptorState, next_roster
from paceline.specs.runs.roster import Member, Roster

Histories = tuple[int, ...]
Ranks = frozenset[int]
_Item = TypeVar("_Item")


class Proposed(NamedTuple):
    """A proposal, which stays on its way forever."""

    roster: Roster
    versions: tuple[tuple[str, int], ...]
    """The versions that it is based on; 0 for other members."""


class World(NamedTuple):
    """One state of the model; a number stands for each history and proposal."""

    histories: Histories
    """By member: all states of its acceptor."""
    dead: Ranks = frozenset()
    proposals: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Bounds:
    """The size of a model."""

    members: int
    newcomers: int = 0
    proposals: int = 2
    crashes: int = 0
    known_crashes: bool = True
    """Whether any leader may know of a crash; otherwise none does."""
    late_reports: bool = True
    """Whether a proposal may be based on earlier states of members."""


@dataclass(frozen=True)
class Explored:
    """The result of a check."""

    states: int
    transitions: int
    broken: tuple[str, ...] = ()
    """The path to the first state with two generations that make progress; empty if none has."""


class Model:
    """The transitions between worlds.

    Results of the real code are cached: most worlds differ in one member only.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        count = bounds.members + bounds.newcomers
        self.members = tuple(
            Member(name=name, node=name, address="10.0.0.1", port=1) for name in "abcdefgh"[:count]
        )
        self.names = tuple(each.name for each in self.members)
        self._states: list[AcceptorState] = []
        self._histories: list[tuple[int, ...]] = []
        self._proposals: list[Proposed] = []
        self._numbers: dict[object, int] = {}
        self._delivered = cache(self._delivered_now)
        self._has_accepted = cache(self._has_accepted_now)
        self._followed = cache(self._followed_now)
        self._next = cache(self._next_now)
        self._proposable = cache(self._proposable_now)
        self.is_broken = cache(self._is_broken_now)

    def first(self) -> World:
        """Return the world in which the first generation has begun."""
        begun = Roster(generation=0, members=self.members[: self.bounds.members])
        acceptors = [Acceptor(begun) for _ in begun.members]
        acceptors += [Acceptor.of_newcomer(each) for each in self.members[self.bounds.members :]]
        return World(tuple(self._history((self._state(each.state),)) for each in acceptors))

    def after(self, world: World) -> Iterator[World]:
        """Yield all worlds that one event leads to."""
        histories, dead, proposals = world
        if len(dead) < self.bounds.crashes:
            for rank in range(len(histories)):
                if rank not in dead:
                    yield World(histories, dead | {rank}, proposals)
        for number in proposals:
            may_begin = self.may_begin(number, histories)
            for rank, history in enumerate(histories):
                found = None if rank in dead else self._delivered(number, rank, history, may_begin)
                if found is not None:
                    yield World((*histories[:rank], found, *histories[rank + 1 :]), dead, proposals)
        if len(proposals) < self.bounds.proposals:
            for number in self._proposable(histories, dead) - proposals:
                yield World(histories, dead, proposals | {number})

    def may_begin(self, number: int, histories: Histories) -> bool:
        """Return whether a leader may have the votes of all members that a proposal needs."""
        return all(
            self._has_accepted(number, rank, history) for rank, history in enumerate(histories)
        )

    def in_words(self, world: World) -> str:
        """Describe a world for a failed test."""
        words = (
            f"{name}{' (dead)' if rank in world.dead else ''}: {self._followed(history)}"
            for rank, (name, history) in enumerate(zip(self.names, world.histories, strict=True))
        )
        return ", ".join(words)

    def last_vote(self, number: int) -> AcceptorState:
        """Return the state that a dead member's neighbors report."""
        return self._states[number]

    def _is_broken_now(self, histories: Histories, dead: Ranks) -> bool:
        """Return whether two generations make progress: all their members follow them."""
        living = (history for rank, history in enumerate(histories) if rank not in dead)
        followers = Counter(map(self._followed, living))
        going = [
            each for each, count in followers.items() if each[0] >= 0 and count == len(each[1])
        ]
        return len(going) > 1

    def _followed_now(self, history: int) -> tuple[int, tuple[str, ...]]:
        state = self._states[self._histories[history][-1]]
        roster = state.accepted or state.begun
        return roster.generation, roster.names

    def _has_accepted_now(self, number: int, rank: int, history: int) -> bool:
        """Return whether a member has accepted a proposal, or has no vote on it."""
        one, name = self._proposals[number], self.names[rank]
        version = 1 + dict(one.versions).get(name, 0)
        return name not in one.roster.names or any(
            self._states[each].version == version and self._states[each].accepted == one.roster
            for each in self._histories[history]
        )

    def _delivered_now(self, number: int, rank: int, history: int, may_begin: bool) -> int | None:
        """Return a member's history after a proposal or its beginning; None if nothing changes."""
        one, name = self._proposals[number], self.names[rank]
        if name not in one.roster.names:
            return None
        states = self._histories[history]
        acceptor = Acceptor(self._states[states[-1]].begun)
        acceptor.state = self._states[states[-1]]
        if self._has_accepted(number, rank, history):
            changed = may_begin and acceptor.begin(one.roster)
        else:
            changed = acceptor.accept(one.roster, dict(one.versions).get(name, 0))
        return self._history((*states, self._state(acceptor.state))) if changed else None

    def _proposable_now(self, histories: Histories, dead: Ranks) -> frozenset[int]:
        """Return the proposals on every combination of reports, newcomers and known crashes."""
        choices = [self._reports(rank, history) for rank, history in enumerate(histories)]
        crashed = [
            (self.names[rank], self._histories[histories[rank]][-1])
            for rank in sorted(dead)
            if self.bounds.known_crashes
        ]
        known = list(_subsets(crashed))
        found = (self._next(reports, each) for reports in product(*choices) for each in known)
        return frozenset().union(*found)

    def _next_now(
        self, reports: tuple[int, ...], dead: tuple[tuple[str, int], ...]
    ) -> frozenset[int]:
        """Return the proposals on these reports and last votes; -1 for no report."""
        ready = {
            name: self._states[each]
            for name, each in zip(self.names, reports, strict=True)
            if each >= 0
        }
        versions = tuple((name, each.version) for name, each in ready.items() if each.version)
        newcomers = [each for each in self.members[self.bounds.members :] if each.name not in ready]
        last_votes = {name: self.last_vote(state) for name, state in dead}
        subsets = _subsets(newcomers) if ready else ()
        rosters = [next_roster(ready, new, last_votes) for new in subsets]
        return frozenset(
            self._proposal(Proposed(roster, versions)) for roster in rosters if roster is not None
        )

    def _reports(self, rank: int, history: int) -> list[int]:
        """Return the reports of a member that a leader may have; -1 for no report."""
        states = self._histories[history]
        if rank >= self.bounds.members:
            states = states[1:]  # a newcomer that has accepted nothing is not asked
        return [-1, *(states if self.bounds.late_reports else states[-1:])]

    def _state(self, state: AcceptorState) -> int:
        accepted = state.accepted and (state.accepted.generation, state.accepted.names)
        key = state.begun.generation, state.begun.names, accepted, state.version
        return _number(self._states, self._numbers, state, key)

    def _history(self, states: tuple[int, ...]) -> int:
        return _number(self._histories, self._numbers, states, states)

    def _proposal(self, one: Proposed) -> int:
        key = one.roster.generation, one.roster.names, one.versions
        return _number(self._proposals, self._numbers, one, key)


def _number(items: list[_Item], numbers: dict[object, int], item: _Item, key: object) -> int:
    """Return an item's number; its key is faster to hash."""
    if key not in numbers:
        numbers[key] = len(items)
        items.append(item)
    return numbers[key]


def _subsets(items: Sequence[_Item]) -> Iterator[tuple[_Item, ...]]:
    return chain.from_iterable(combinations(items, count) for count in range(len(items) + 1))


def explore(model: Model, first: World | None = None) -> Explored:
    """Visit every state that is reachable from the first one, or stop at the first broken one."""
    first = first or model.first()
    came_from: dict[World, World | None] = {first: None}
    level, transitions = [first], 0
    while level:
        following = []
        for world in level:
            for each in model.after(world):
                transitions += 1
                if each in came_from:
                    continue
                came_from[each] = world
                if model.is_broken(each.histories, each.dead):
                    path = _path(came_from, each)
                    return Explored(len(came_from), transitions, tuple(map(model.in_words, path)))
                following.append(each)
        level = following
    return Explored(len(came_from), transitions)


def _path(came_from: dict[World, World | None], last: World) -> list[World]:
    path: list[World] = []
    at: World | None = last
    while at is not None:
        path.append(at)
        at = came_from[at]
    return path[::-1]
