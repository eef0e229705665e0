"""Crews of up to 10,000 real members in the event loops of a few processes, over loopback.

Members of one process share what is equal: the rosters that they know (10,000 members with a copy
each would need 100 GB). Their trainings are STAND-INS that leave their generation at once.
"""

import asyncio
import gc
import os
import secrets
import signal
import sys
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from benchmarks.control_plane.board import Board, Field
from benchmarks.control_plane.counting import count_traffic
from benchmarks.control_plane.crew import PER_NODE, facts, hooks, member
from benchmarks.control_plane.measurement import Measurement
from paceline.cluster.open_files import allow_most_files
from paceline.membership import participant
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.participant import Participant
from paceline.specs import Faults
from paceline.specs.runs.roster import Roster

_Result = TypeVar("_Result")
SECRET = secrets.token_bytes(32)
PROCESSES = 8
STORM_SECONDS = 0.05
"""Within this time, the collectives of all members fail after a loss."""
_POLL_SECONDS = 0.01
_ROW: ContextVar[int] = ContextVar("row")
"""The member whose task this is: tasks inherit it from those that begin them."""
_LOSE, _LEAVE = 1, 2
"""What the driver asks of a member."""


def lost_ranks(members: int, event: str) -> list[int]:
    """Return the ranks that an event takes away."""
    if event == "leader killed":
        return [0]
    return [members // 2 // PER_NODE * PER_NODE + 1]


def measure(
    members: int, event: str, folder: Path, lease_seconds: float, timeout_seconds: float
) -> Measurement:
    """Return what an event costs: "worker killed" or "leader killed"."""
    allow_most_files()
    folder.mkdir(parents=True)
    board = Board(members)
    count = max(1, min(PROCESSES, members // 64))
    gc.collect()
    gc.freeze()
    pids = []
    for number in range(count):
        rows = range(number * members // count, (number + 1) * members // count)
        pids.append(_forked(board, rows, members, folder, lease_seconds))
    try:
        return _driven(board, members, event, pids, folder, lease_seconds, timeout_seconds)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _driven(
    board: Board,
    members: int,
    event: str,
    pids: Sequence[int],
    folder: Path,
    lease_seconds: float,
    timeout_seconds: float,
) -> Measurement:
    everybody = range(members)
    _await(board, everybody, Field.PORT, timeout_seconds)
    roster = Roster(
        generation=0,
        members=tuple(_member(rank, board.get(rank, Field.PORT)) for rank in everybody),
        training=members,
    )
    (folder / "new").write_text(roster.model_dump_json())
    (folder / "new").replace(folder / "roster.json")
    _await(board, everybody, Field.STEP, timeout_seconds)  # all of its connections are there
    lost = lost_ranks(members, event)
    left = sorted(set(everybody) - set(lost))
    fields = Field.SENT_MESSAGES, Field.SENT_BYTES, Field.RECEIVED_BYTES
    before = {rank: [board.get(rank, field) for field in fields] for rank in left}
    cpu = _cpu_seconds(pids)
    began = time.monotonic()
    for rank in lost:
        board.set(rank, Field.ASKED, _LOSE)
    _await(board, lost, Field.ENDED, timeout_seconds)
    for rank in left:
        board.set(rank, Field.ASKED, _LEAVE)
    deadline = began + timeout_seconds
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no generation began within {timeout_seconds:g} s")
        begun = [rank for rank in left if board.get(rank, Field.GENERATION) > 1]
        if begun and len(begun) >= board.get(begun[0], Field.MEMBERS):
            break
        time.sleep(_POLL_SECONDS)
    seconds = max(board.get(rank, Field.BEGUN_AT) for rank in left) / 1e9 - began
    newest = max(board.get(rank, Field.GENERATION) for rank in left)
    there = [rank for rank in left if board.get(rank, Field.GENERATION) == newest]
    cpu = _cpu_seconds(pids) - cpu
    grown = {
        rank: [
            board.get(rank, field) - was for field, was in zip(fields, before[rank], strict=True)
        ]
        for rank in left
    }
    return Measurement(
        how="event loops",
        members=members,
        event=event,
        lost=len(lost),
        seconds=seconds,
        beyond_lease_seconds=None,
        messages=sum(each[0] for each in grown.values()),
        total_bytes=sum(each[1] for each in grown.values()),
        busiest_bytes=max(each[1] + each[2] for each in grown.values()),
        cpu_seconds=cpu,
        left_out=len(left) - len(there),
        generations=newest - 1,
        lease_seconds=lease_seconds,
        load=os.getloadavg()[0],
    )


def _await(board: Board, rows: Collection[int], field: Field, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not all(board.get(row, field) for row in rows):
        if time.monotonic() > deadline:
            missing = sum(not board.get(row, field) for row in rows)
            raise TimeoutError(f"{missing} of {len(rows)} members: no {field.name} in {seconds} s")
        time.sleep(_POLL_SECONDS)


def _member(rank: int, port: int) -> Any:
    """Return a member with the address of its node: all of 127.0.0.0/8 is loopback."""
    node = rank // PER_NODE
    address = f"127.1.{node // 250}.{node % 250 + 1}"
    return member(rank, port).model_copy(update={"address": address})


def _cpu_seconds(pids: Sequence[int]) -> float:
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def _forked(board: Board, rows: range, members: int, folder: Path, lease_seconds: float) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            with (folder / f"log-{rows.start}").open("w", buffering=1) as log:
                os.dup2(log.fileno(), 2)
            asyncio.run(_Crew(board, rows, members, folder, lease_seconds).run())
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            raise
        finally:
            os._exit(0)
    return pid


class _Crew:
    """The members of one process."""

    def __init__(
        self, board: Board, rows: range, members: int, folder: Path, lease_seconds: float
    ) -> None:
        self._board, self._rows, self._members, self._folder = board, rows, members, folder
        self._faults = Faults(lease_seconds=lease_seconds)
        self._own: dict[int, Participant] = {}
        self._chance = Random(rows.start)

    async def run(self) -> None:
        """Do what the driver asks, until it ends this process."""
        count_traffic(self._board, _ROW.get)
        _share_rosters()
        memory = self._folder / "memory"
        setattr(participant, "LastVotes", partial(_node_votes, memory))  # noqa: B010
        for row in self._rows:
            self._own[row] = await _as(row, self._opened(row))
            self._board.set(row, Field.PORT, self._own[row].state.me.port)
        path = self._folder / "roster.json"
        while not path.exists():
            await asyncio.sleep(_POLL_SECONDS)
        roster = Roster.model_validate_json(path.read_bytes())
        for row, own in self._own.items():
            await _as(row, _start(own, roster))
            await asyncio.sleep(0)
        started, asked = set(self._own), set(self._own)
        while True:
            for row in sorted(started):
                if _is_watched(self._own[row]):
                    self._board.set(row, Field.STEP, 1)
                    started.remove(row)
            for row in sorted(asked):
                what = self._board.get(row, Field.ASKED)
                if what:
                    asked.remove(row)
                    own = self._own[row]
                    await _as(row, _lose(own) if what == _LOSE else self._shaken(row))
                    self._board.set(row, Field.ENDED, int(what == _LOSE))
            await asyncio.sleep(_POLL_SECONDS)

    async def _opened(self, row: int) -> Participant:
        me = _member(row, 1)
        own = Participant(
            me, SECRET, self._faults, hooks(self._members, interrupt=partial(self._leave, row))
        )
        await own.listen(me.address)
        own.state.next.add_done_callback(partial(self._begun, row))
        return own

    async def _shaken(self, row: int) -> None:
        """Let a member's collective fail a moment later, as all do when one member is lost."""
        later = self._chance.uniform(0, STORM_SECONDS)
        asyncio.get_running_loop().call_later(later, self._leave, row)

    def _leave(self, row: int) -> None:
        state = self._own[row].state
        if state.generation == 0 and not state.left.is_set():
            state.leave(facts(row), "a collective was interrupted")

    def _begun(self, row: int, begun: "asyncio.Future[Any]") -> None:
        if not begun.cancelled() and begun.exception() is None:
            roster = begun.result().roster
            self._board.set(row, Field.BEGUN_AT, time.monotonic_ns())
            self._board.set(row, Field.MEMBERS, len(roster.members))
            self._board.set(row, Field.GENERATION, roster.generation + 1)


def _is_watched(own: Participant) -> bool:
    """Return whether all of a member's connections in the tree are open."""
    watch = own.state.heartbeats
    return watch is not None and set(watch._channels) >= set(watch._heard_at)


def _node_votes(memory: Path, secret: bytes) -> LastVotes:
    """Return the last votes of the current member's node."""
    own = memory / str(_ROW.get() // PER_NODE)
    own.mkdir(parents=True, exist_ok=True)
    return LastVotes(secret, own)


async def _start(own: Participant, roster: Roster) -> None:
    own.state.start(roster)


async def _as(row: int, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do a member's work in a task of its own."""
    context = copy_context()
    context.run(_ROW.set, row)
    return await asyncio.create_task(work, context=context)


async def _lose(own: Participant) -> None:
    """All its connections end without a word, as where its process is killed."""
    for task in list(own.state._tasks):  # a neighbor that was lost before may have ended its step
        task.cancel()
    watch = own.state.heartbeats
    if watch is not None:
        watch._heard_at.clear()
        watch._ticking.cancel()
        watch._watching.cancel()
        for each in watch._channels.values():
            each._writer.transport.abort()
        own.state.heartbeats = None
    await own.state.control.close()


def _share_rosters() -> None:
    """Let all members of this process keep the same copy of a roster."""
    shared: dict[str, Roster] = {}
    add = RosterBook.add

    def share(book: RosterBook, roster: Roster) -> str:
        return add(book, shared.setdefault(roster.digest, roster))

    setattr(RosterBook, "add", share)  # noqa: B010
