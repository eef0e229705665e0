"""Real members, all in one event loop, with real connections: what they say when one is lost."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any, TypeVar
from unittest.mock import patch

from benchmarks.membership.crew import FACTS, hooks, member
from paceline.comm.signing import MAC_BYTES, Signing
from paceline.membership import channel
from paceline.membership.heartbeats import children_of
from paceline.membership.participant import Participant
from paceline.specs import Faults
from paceline.specs.runs.roster import Roster

_Result = TypeVar("_Result")
SECRET = b"only this job knows it"
QUIET_SECONDS = 3.0
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 60.0
_LENGTH_BYTES = 4
_KIND = re.compile(rb'{"kind":"(?:ask","question":{"kind":")?(\w+)')
_SPEAKER: ContextVar[int] = ContextVar("speaker")
"""The member whose task this is: tasks inherit it from those that begin them."""


@dataclass
class Traffic:
    """What members have said, by member and kind; the kind of a question is its own."""

    messages: Counter[tuple[int, str]] = field(default_factory=Counter)
    sizes: Counter[tuple[int, str]] = field(default_factory=Counter)
    connections: Counter[int] = field(default_factory=Counter)
    """Made or accepted."""

    def clear(self) -> None:
        """Count from now on."""
        for each in (self.messages, self.sizes, self.connections):
            each.clear()


@dataclass(frozen=True)
class Quiet:
    """A crew of which all are well."""

    members: int
    most_connections: int
    mean_connections: float
    most_beats_per_second: float
    beats_per_second: float


@dataclass(frozen=True)
class Regroup:
    """A crew that lost one member; messages are counted without beats."""

    members: int
    lease_seconds: float
    messages: int
    most_messages: int
    sent_bytes: int
    most_sent_bytes: int
    notices: int
    most_new_connections: int
    """Made or accepted by one member."""
    seconds: float
    """Until all who are left have begun the next generation."""
    left_out: int
    """Members that lived and are not in it."""


def counting(traffic: Traffic) -> type[Signing]:
    """Signs as ever, and counts what is signed: every message of a connection is, once."""

    class Counting(Signing):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            traffic.connections[_SPEAKER.get()] += 1

        def sign(self, body: bytes) -> bytes:
            """Count it, too."""
            kind = _KIND.match(body)
            assert kind is not None
            key = _SPEAKER.get(), kind[1].decode()
            traffic.messages[key] += 1
            traffic.sizes[key] += _LENGTH_BYTES + MAC_BYTES + len(body)
            return super().sign(body)

    return Counting


def quiet(members: int, lease_seconds: float) -> Quiet:
    """So many members while nothing happens."""

    async def measured() -> Quiet:
        async with _generation(members, lease_seconds) as (crew, traffic):
            held = [len(_lines(own)) for own in crew]
            traffic.clear()
            await asyncio.sleep(QUIET_SECONDS)
            said = traffic.messages.items()
            beats = Counter({rank: number for (rank, kind), number in said if kind == "heartbeat"})
            return Quiet(
                members=members,
                most_connections=max(held),
                mean_connections=mean(held),
                most_beats_per_second=max(beats.values()) / QUIET_SECONDS,
                beats_per_second=beats.total() / QUIET_SECONDS,
            )

    return asyncio.run(measured())


def regroup(members: int, lease_seconds: float) -> Regroup:
    """So many members lose one that watches nobody."""

    async def measured() -> Regroup:
        async with _generation(members, lease_seconds) as (crew, traffic):
            lost = members // 2 + 1
            assert not children_of(crew[0].state.roster, lost)
            left = [own for own in crew if own is not crew[lost]]
            traffic.clear()
            began = time.perf_counter()
            await _lose(crew[lost])
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(own.state.generation == 0 for own in left):
                    await asyncio.sleep(POLL_SECONDS)
            seconds = time.perf_counter() - began
            there = [own for own in left if own.state.generation == 1]
            await _until_watched(there)
            said, sizes = _by_member(traffic.messages), _by_member(traffic.sizes)
            return Regroup(
                members=members,
                lease_seconds=lease_seconds,
                messages=said.total(),
                most_messages=max(said.values()),
                sent_bytes=sizes.total(),
                most_sent_bytes=max(sizes.values()),
                notices=sum(n for (_, kind), n in traffic.messages.items() if kind == "notice"),
                most_new_connections=max(traffic.connections.values()),
                seconds=seconds,
                left_out=len(left) - len(there),
            )

    return asyncio.run(measured())


@asynccontextmanager
async def _generation(
    members: int, lease_seconds: float
) -> AsyncIterator[tuple[list[Participant], Traffic]]:
    """Members of a generation that has begun, who all watch each other."""
    traffic = Traffic()
    faults = Faults(lease_seconds=lease_seconds)
    crew: list[Participant] = []
    with patch.object(channel, "Signing", counting(traffic)):
        for rank in range(members):
            crew.append(await _as(rank, _opened(rank, members, faults, crew)))
        roster = Roster(generation=0, members=tuple(own.state.me for own in crew), training=members)
        try:
            for rank, own in enumerate(crew):
                await _as(rank, _start(own, roster))
            await _until_watched(crew)
            yield crew, traffic
        finally:
            for rank, own in enumerate(crew):
                await _as(rank, own.state.close())


async def _opened(
    rank: int, members: int, faults: Faults, crew: Sequence[Participant]
) -> Participant:
    leave = partial(_leave, crew, rank)
    own = Participant(member(rank), SECRET, faults, hooks(members, interrupt=leave))
    await own.listen("127.0.0.1")
    return own


def _leave(crew: Sequence[Participant], rank: int) -> None:
    crew[rank].state.leave(FACTS, "an exchange was interrupted")


async def _start(own: Participant, roster: Roster) -> None:
    own.state.start(roster)


async def _as(rank: int, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do a member's work in a task of its own."""
    context = copy_context()
    context.run(_SPEAKER.set, rank)
    return await asyncio.create_task(work, context=context)


def _lines(own: Participant) -> dict[str, channel.Channel]:
    return own.state.heartbeats._channels if own.state.heartbeats is not None else {}


async def _until_watched(crew: Sequence[Participant]) -> None:
    """Every connection of the tree has two ends."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(len(_lines(own)) for own in crew) < 2 * (len(crew) - 1):
            await asyncio.sleep(POLL_SECONDS)


async def _lose(own: Participant) -> None:
    """All its connections end without a word, as where its process is killed."""
    watch = own.state.heartbeats
    assert watch is not None
    watch._heard_at.clear()
    for task in watch._tasks:
        task.cancel()
    for each in watch._channels.values():
        each._writer.transport.abort()
    own.state.heartbeats = None
    await own.state.control.close()


def _by_member(counted: Counter[tuple[int, str]]) -> Counter[int]:
    """Without beats."""
    found: Counter[int] = Counter()
    for (rank, kind), number in counted.items():
        if kind != "heartbeat":
            found[rank] += number
    return found
