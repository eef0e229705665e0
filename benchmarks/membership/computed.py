"""What larger crews would say, by the code that members use: nothing is sent."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from benchmarks.membership.crew import FACTS, PER_NODE, member
from paceline.membership.channel import MAX_BYTES
from paceline.membership.control import HEARTBEATS_PER_LEASE, Control
from paceline.membership.heartbeats import children_of, parent_of
from paceline.membership.messages import (
    Absence,
    Answer,
    Ask,
    Begin,
    End,
    Leave,
    Left,
    Proposal,
    Reply,
    Vote,
)
from paceline.specs.base import Spec
from paceline.specs.runs.roster import Member, Roster

_FIRST_NODES, _BY_CHANCE = 40, 20
_SAID_PER_ASK = 3
"""A hello and the question by who asks, an answer by who is asked."""


@dataclass
class Spread:
    """Who asks whom when a question spreads."""

    asks: list[tuple[str, str, int]] = field(default_factory=list)
    """Who asks, who is asked, and how many others that one is to ask."""


class PaperControl(Control):
    """Asks as a member's control does, but writes down whom; those asked do the same."""

    def __init__(self, name: str, spread: Spread) -> None:
        self.name, self._spread, self._lease = name, spread, 1.0

    async def _ask(self, member: Member, ask: Ask, timeout_seconds: float) -> dict[str, Reply]:
        self._spread.asks.append((self.name, member.name, len(ask.rest)))
        return await PaperControl(member.name, self._spread).gather(ask.question, ask.rest)


@dataclass(frozen=True)
class Computed:
    """A crew of nodes with eight members each, of which one is lost."""

    nodes: int
    members: int
    depth: int
    most_connections: int
    most_beats_per_second: float
    messages: int
    """Of a regroup, without beats, and without notices to those who might lead."""
    most_messages: int
    sent_bytes: int
    most_sent_bytes: int
    largest_message: int
    fits: bool
    """Whether members accept a message as large as that."""


def compute(nodes: int, lease_seconds: float) -> Computed:
    """By the tree of who watches whom, and by how questions spread."""
    roster = Roster(generation=0, members=tuple(map(member, range(nodes * PER_NODE))))
    connections = max(_connections(roster, rank) for rank in _probably_busy(nodes))
    spread = asyncio.run(_spread(roster))
    said, sent, largest = _three_questions(spread, roster)
    # Who leaves says goodbye to both sides of each connection, and says hello for the new one.
    edges = len(roster.members) - 1
    return Computed(
        nodes=nodes,
        members=len(roster.members),
        depth=_depth(roster),
        most_connections=connections,
        most_beats_per_second=connections * HEARTBEATS_PER_LEASE / lease_seconds,
        messages=said.total() + 3 * edges,
        most_messages=max(said.values()) + connections,
        sent_bytes=sent.total(),
        most_sent_bytes=max(sent.values()),
        largest_message=largest,
        fits=largest <= MAX_BYTES,
    )


def _connections(roster: Roster, rank: int) -> int:
    return len(children_of(roster, rank)) + (parent_of(roster, rank) is not None)


def _probably_busy(nodes: int) -> list[int]:
    """The first of the first nodes, of the last one and of some by chance: the tree is filled from
    the front, and to ask about all would take hours."""
    chance = Random(0)
    some = {*range(min(nodes, _FIRST_NODES)), nodes - 1}
    some |= {chance.randrange(nodes) for _ in range(_BY_CHANCE)}
    return [PER_NODE * node for node in sorted(some)]


def _depth(roster: Roster) -> int:
    """Connections between rank 0 and the last rank, which is in the deepest part of the tree."""
    rank: int | None = len(roster.members) - 1
    depth = -1
    while rank is not None:
        rank, depth = parent_of(roster, rank), depth + 1
    return depth


async def _spread(roster: Roster) -> Spread:
    spread = Spread()
    first, *others = roster.members
    question = End(begun=0, name=first.name, message="any question spreads in the same way")
    await PaperControl(first.name, spread).gather(question, others)
    return spread


def _three_questions(spread: Spread, roster: Roster) -> tuple[Counter[str], Counter[str], int]:
    """Messages and bytes by member, and the bytes of the largest message."""
    absence = Absence(reason="process ended", detail="the other end closed the connection")
    lost = {roster.members[-1].name: absence}
    why = f"worker 1 is lost: {absence}"
    left = Left(begun=None, accepted=None, version=0, facts=FACTS, dead=[])
    facts = dict.fromkeys(roster.names, FACTS)
    versions = dict.fromkeys(roster.names, 0)
    rounds: Sequence[tuple[Leave | Proposal | Begin, Reply]] = (
        (Leave(begun=0, lost=lost, unreachable=[], why=why), left),
        (Proposal(roster=roster, versions=versions), Vote(yes=True)),
        (
            Begin(roster=roster, facts=facts, lost=lost, why=why, address="127.0.0.1", port=40_000),
            Vote(yes=True),
        ),
    )
    said: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    largest = 0
    for question, reply in rounds:
        ask = _size_by_others(partial(_ask, question), roster)
        answer = _size_by_others(partial(_answer, reply), roster)
        for asker, asked, others in spread.asks:
            said[asker] += _SAID_PER_ASK - 1
            said[asked] += 1
            sent[asker] += ask(others)
            sent[asked] += answer(others + 1)
            largest = max(largest, ask(others), answer(others + 1))
    return said, sent, largest


def _ask(question: Leave | Proposal | Begin, rest: Sequence[Member]) -> Ask:
    return Ask(question=question, rest=tuple(rest))


def _answer(reply: Reply, members: Sequence[Member]) -> Answer:
    return Answer(replies={each.name: reply for each in members})


def _size_by_others(
    message: Callable[[Sequence[Member]], Spec], roster: Roster
) -> Callable[[int], int]:
    """The bytes of a message by the number of members in it, who all take as many."""
    one, two = (len(message(roster.members[:number]).model_dump_json()) for number in (1, 2))
    return lambda others: one + (others - 1) * (two - one)
