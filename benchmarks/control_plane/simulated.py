"""A SIMULATION of a regroup, message by message, for crews that no machine here can hold.

Simulated: the storm of notices to the leader, the three questions that spread along the tree of the
real `Control.gather`, and the new heartbeat connections. Message sizes are those of real messages.
Each member's work per message, and per member of the roster, is fitted on measured crews
(`fit.py`). A message waits for its receiver's core; members share as many cores as the machine has
that it is compared with, or have one core each.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.control_plane.crew import FACTS, member
from benchmarks.control_plane.measurement import KILLED, Measurement
from paceline.comm.signing import MAC_BYTES
from paceline.membership.compact.missing import Absence, Who
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.control import Control
from paceline.membership.messages import (
    Answer,
    Ask,
    Begin,
    End,
    EqualFacts,
    EqualReplies,
    Facts,
    Leave,
    Left,
    Notice,
    Proposal,
    Reply,
    Selection,
    Vote,
)
from paceline.specs.runs.roster import Roster

WIRE_BYTES = 4 + MAC_BYTES
_HELLO_BYTES = 32 + WIRE_BYTES + 80
_NOTIFIERS = 64
_HEARTBEAT_EDGES_MESSAGES = 3
"""Two goodbyes and a hello for each connection of the heartbeat tree."""


@dataclass(frozen=True)
class Costs:
    """Seconds of work, fitted on measured crews."""

    per_message: float
    """For the sender and the receiver together."""
    per_byte: float
    per_member: float
    """Of each member in one regroup, however large the crew is."""
    per_member_squared: float
    """Of each member, for each member of the roster."""
    latency: float = 0.0001
    """Of a message between two idle members."""


class _PaperControl(Control):
    """Asks as a member's control does, but notes whom; those asked do the same."""

    def __init__(self, rank: int, spread: "Spread", book: RosterBook) -> None:
        self._rank, self._spread, self._lease = rank, spread, 1.0
        self._is_suspect, self._answered = lambda _: False, lambda _name, _reply: None
        self.book = book

    async def _ask(self, member: object, ask: Ask, timeout_seconds: float | None) -> Answer:
        rank = int(member.name.split(":")[1])  # type: ignore[attr-defined]
        self._spread.children.setdefault(self._rank, []).append(rank)
        self._spread.rests[rank] = ask.rest
        asked = _PaperControl(rank, self._spread, self.book)
        rest = self.book.selected(ask.rest) or []
        await asked.gather(ask.question, rest, roster=ask.rest.roster)
        return Answer(replies=(), facts={})


@dataclass
class Spread:
    """The tree along which a question spreads from rank 0."""

    children: dict[int, list[int]] = field(default_factory=dict)
    rests: dict[int, Selection] = field(default_factory=dict)
    """What each member is to ask in turn."""


@dataclass
class _Traffic:
    messages: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)

    def add(self, sender: int, receiver: int, size: int) -> None:
        self.messages += 1
        self.sent[sender] += size
        self.received[receiver] += size


class _Cores:
    """Cores that all members share, or one for each member."""

    def __init__(self, shared: int | None) -> None:
        self._free = [0.0] * shared if shared else None
        self._own: dict[int, float] = {}

    def work(self, rank: int, at: float, seconds: float) -> float:
        """Return when a member's work is done that can begin at this time."""
        begin = max(at, self._own.get(rank, 0.0))
        if self._free is not None:
            # Not the core that has been idle for longest: work that is only planned for later would
            # leave it idle until then, although others' work could begin at once.
            idle = [free for free in self._free if free <= begin]
            core = self._free.index(max(idle) if idle else min(self._free))
            begin = max(begin, self._free[core])
            self._free[core] = begin + seconds
        self._own[rank] = begin + seconds
        return begin + seconds


def simulate(members: int, costs: Costs, *, cores: int | None) -> Measurement:
    """Return what the loss of one worker costs; `cores`: shared cores, None for one per member."""
    roster = Roster(generation=0, members=tuple(map(member, range(members))), training=members)
    spread = _spread(roster)
    traffic, shared = _Traffic(), _Cores(cores)
    own = costs.per_member + costs.per_member_squared * members
    sizes = _sizes(roster, spread)
    notice = sizes["notice"]
    assert isinstance(notice, int)
    at = _notified(traffic, shared, costs, members, notice)
    begun = at
    for question in ("leave", "proposal", "begin"):
        at, begun = _round(spread, sizes, question, traffic, shared, costs, own / 3, at)
    edges = members - 1
    traffic.messages += _HEARTBEAT_EDGES_MESSAGES * edges
    cpu = own * members + traffic.messages * costs.per_message
    cpu += traffic.sent.total() * costs.per_byte
    return Measurement(
        how="simulated" if cores else "simulated, a core each",
        members=members,
        event=KILLED,
        lost=1,
        seconds=begun,
        beyond_lease_seconds=None,
        messages=traffic.messages,
        total_bytes=traffic.sent.total() + edges * (_HELLO_BYTES + 2 * (WIRE_BYTES + 35)),
        busiest_bytes=max(traffic.sent[rank] + traffic.received[rank] for rank in traffic.sent),
        cpu_seconds=cpu,
        left_out=0,
        generations=1,
        lease_seconds=0.0,
        load=0.0,
    )


def _spread(roster: Roster) -> Spread:
    spread, book = Spread(), RosterBook()
    digest = book.add(roster)
    question = End(begun=0, name=roster.members[0].name, message="any question spreads like this")
    first = _PaperControl(0, spread, book)
    asyncio.run(first.gather(question, roster.members[1:], roster=digest))
    return spread


def _notified(traffic: _Traffic, cores: _Cores, costs: Costs, members: int, size: int) -> float:
    """Let the notifiers tell the leader; return when it has read all of them."""
    at = 0.0
    for rank in range(1, min(members, _NOTIFIERS + 1)):
        traffic.add(rank, 0, size)
        sent = cores.work(rank, 0.0, _half(costs, size))
        at = max(at, cores.work(0, sent + costs.latency, _half(costs, size)))
    return at


def _round(
    spread: Spread,
    sizes: dict[str, dict[int, int] | int],
    question: str,
    traffic: _Traffic,
    cores: _Cores,
    costs: Costs,
    own_seconds: float,
    at: float,
) -> tuple[float, float]:
    """Spread a question and collect the answers: return when all are there, and all had asked."""
    asks, answers = sizes[question], sizes[question + " answer"]
    assert isinstance(asks, dict)
    assert isinstance(answers, dict)
    parents = {child: rank for rank, found in spread.children.items() for child in found}
    missing = {rank: len(found) for rank, found in spread.children.items()}
    events: list[tuple[float, int, str, int]] = []
    number = 0

    def later(when: float, what: str, rank: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (when, number, what, rank))

    def ask_children(rank: int, when: float) -> None:
        for child in spread.children.get(rank, ()):
            when = cores.work(rank, when, _half(costs, asks[child]))
            traffic.add(rank, child, asks[child])
            later(when + costs.latency, "asked", child)

    def answer(rank: int, when: float) -> None:
        when = cores.work(rank, when, _half(costs, answers[rank]))
        traffic.add(rank, parents[rank], answers[rank])
        later(when + costs.latency, "answered", rank)

    all_asked = all_answered = at
    ask_children(0, cores.work(0, at, own_seconds))
    while events:
        when, _, what, rank = heapq.heappop(events)
        if what == "asked":
            when = cores.work(rank, when, _half(costs, asks[rank]) + own_seconds)
            all_asked = max(all_asked, when)
            ask_children(rank, when)
            if not missing.get(rank):
                answer(rank, when)
        else:
            parent = parents[rank]
            when = cores.work(parent, when, _half(costs, answers[rank]))
            missing[parent] -= 1
            if parent == 0:
                all_answered = max(all_answered, when)
            elif missing[parent] == 0:
                answer(parent, when)
    return all_answered, all_asked


def _half(costs: Costs, size: int) -> float:
    """Return the work of one end of a message."""
    return (costs.per_message + costs.per_byte * size) / 2


def _sizes(roster: Roster, spread: Spread) -> dict[str, dict[int, int] | int]:
    """Return the sizes of real messages, by question and the member that is asked."""
    absence = Absence(reason="process ended", detail="the other end closed the connection")
    lost = {roster.members[-1].name: absence}
    why = f"worker 1 is lost: {absence}"
    book = RosterBook()
    following = Roster(generation=1, members=roster.members[:-1], training=len(roster.members) - 1)
    change = book.change(book.add(roster), following)
    everybody = Who(ranks=((0, len(following.members)),))
    facts: Facts = {
        name: (EqualFacts(value=value, who=everybody),) for name, value in FACTS.items()
    }
    facts["held_from"] = (EqualFacts(value=[0, 0], who=everybody, less_rank=True),)
    missing = book.missing(change.base, lost, {}, ())
    asker = roster.members[0].name
    begin = {"missing": missing, "why": why, "address": "127.0.0.1", "port": 40_000}
    left = Left(begun=None, accepted=None, version=0, facts={}, dead=[], quiet={})
    yes = Vote(yes=True)
    rounds: Sequence[tuple[str, Leave | Proposal | Begin, Reply, Facts]] = (
        ("leave", Leave(asker=asker, begun=0, accepted=0, missing=missing, why=why), left, facts),
        ("proposal", Proposal(asker=asker, change=change, version=0, versions={}), yes, {}),
        ("begin", Begin(roster=change.digest, facts=facts, **begin), yes, {}),
    )
    notice = Notice(asker=asker, begun=0, accepted=0, missing=missing, why=why)
    sizes: dict[str, dict[int, int] | int] = {
        "notice": _size(Ask(question=notice)) + _HELLO_BYTES + WIRE_BYTES + 60
    }
    for name, question, reply, told in rounds:
        bare = _size(Ask(question=question))
        groups = (EqualReplies(reply=reply, who=Who(ranks=((0, 1),))),)
        answer = _size(Answer(replies=groups, facts=told))
        empty = len(Selection().model_dump_json())
        rests = {rank: len(rest.model_dump_json()) - empty for rank, rest in spread.rests.items()}
        hello = _HELLO_BYTES if name == "leave" else 0
        sizes[name] = {rank: bare + size + hello for rank, size in rests.items()}
        sizes[name + " answer"] = dict.fromkeys(spread.rests, answer)
    return sizes


def _size(message: Ask | Answer) -> int:
    return WIRE_BYTES + len(message.model_dump_json())
