"""A dead member's last vote is read from its node's memory, or the member is only absent."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.control_plane.crew import member
from paceline.cluster.process import start_ticks
from paceline.membership.consensus import Acceptor, AcceptorState, next_roster
from paceline.membership.deaths import last_votes
from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.deaths.process_death import is_dead, kill
from paceline.specs.runs.roster import Member, Roster

SECRET = b"only this job knows it"
ME = member(0)


def roster_of(*ranks: int, generation: int = 0) -> Roster:
    return Roster(generation=generation, members=tuple(map(member, ranks)))


def test_a_vote_outlives_its_process_and_is_read_by_a_neighbor(tmp_path: Path) -> None:
    first, second = roster_of(0, 1, 2), roster_of(0, 1, generation=1)
    acceptor = Acceptor(first)
    assert acceptor.accept(second, 0)
    assert LastVotes(SECRET, tmp_path).record(ME, acceptor.state)
    found = LastVotes(SECRET, tmp_path).read(ME.name)
    assert found is not None
    assert (found.begun, found.accepted) == (first, second)


def test_a_member_without_a_readable_record_is_not_known(tmp_path: Path) -> None:
    votes = LastVotes(SECRET, tmp_path)
    assert votes.read(ME.name) is None
    assert votes.record(ME, Acceptor(roster_of(0, 1)).state)
    (record,) = tmp_path.glob("*/*.vote")
    record.write_text("{")
    assert votes.read(ME.name) is None
    assert LastVotes(b"another job's", tmp_path).read(ME.name) is None


def test_a_vote_that_cannot_be_recorded_leaves_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    votes = LastVotes(SECRET, tmp_path)
    assert votes.record(ME, Acceptor(roster_of(0, 1)).state)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(last_votes, "write_owned", full)
    assert votes.record(ME, Acceptor(roster_of(0, 1, generation=1)).state)
    assert votes.read(ME.name) is None
    monkeypatch.setattr(Path, "unlink", full)
    assert not votes.record(ME, Acceptor(roster_of(0, 1, generation=2)).state)


def test_the_last_one_to_close_leaves_nothing(tmp_path: Path) -> None:
    votes, state = LastVotes(SECRET, tmp_path), Acceptor(roster_of(0, 1)).state
    here = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    crew = [member(rank).model_copy(update=here) for rank in range(3)]
    for each in crew:
        assert votes.record(each, state)
    assert votes.record(member(3), state)  # of a process that is gone
    votes.close(crew[0], state)
    votes.close(crew[1], state)
    assert votes.read(crew[0].name) is not None
    votes.close(crew[2], state)
    assert not list(tmp_path.iterdir())


def test_what_killed_runs_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    assert LastVotes(b"a killed run's", tmp_path).record(ME, Acceptor(roster_of(0, 1)).state)
    (stale,) = tmp_path.iterdir()
    os.utime(stale, (0, 0))
    assert LastVotes(SECRET, tmp_path).record(ME, Acceptor(roster_of(0, 1)).state)
    assert not stale.exists()


def test_old_rosters_are_removed(tmp_path: Path) -> None:
    votes = LastVotes(SECRET, tmp_path)
    for generation in range(30):
        assert votes.record(ME, Acceptor(roster_of(0, 1, generation=generation)).state)
        votes.forget_before(generation)
    assert len(list(tmp_path.glob("*/*.roster"))) < 12


def test_a_dead_voters_roster_may_have_begun() -> None:
    """Of five, the first and the second are cut off from the fourth and fifth."""
    first = roster_of(0, 1, 2, 3, 4)
    begun = roster_of(2, 3, 4, generation=1)  # with the vote of the third, which then dies
    ready = {member(rank).name: AcceptorState(first, None, 0) for rank in (0, 1)}
    third = member(2).name
    assert next_roster(ready, [], {third: AcceptorState(first, begun, 0)}) is None
    without = next_roster(ready, [], {third: AcceptorState(first, None, 0)})
    assert without is not None
    assert set(without.names) == set(ready)


@contextmanager
def processes(count: int) -> Iterator[list[Member]]:
    """Members of one node with living processes of their own."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    living = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield [
            member(rank).model_copy(update={"pid": each.pid, "start_ticks": start_ticks(each.pid)})
            for rank, each in enumerate(living)
        ]
    finally:
        for each in living:
            each.kill()
            each.wait()


def test_only_the_process_of_a_member_is_killed() -> None:
    with processes(1) as (living,):
        older = living.model_copy(update={"start_ticks": 1})
        kill([older])
        assert not is_dead(living)
        assert is_dead(older)
        kill([living])
        assert is_dead(living)


def test_a_death_is_seen_with_many_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """`select` knows no descriptors above 1,023; a process that its parent had not reaped lived."""
    opened = os.pidfd_open

    def above_those_of_select(pid: int) -> int:
        low = opened(pid)
        try:
            return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)
        finally:
            os.close(low)

    monkeypatch.setattr(os, "pidfd_open", above_those_of_select)
    with processes(1) as (living,):
        assert not is_dead(living)
        kill([living])
        assert is_dead(living)


def test_a_member_waits_for_all_that_it_kills_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each took half a second, in which this member answered nobody: with three, a lease."""
    # As if the kernel could not end them yet, as where a driver has them.
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    with processes(3) as crew:
        began = time.monotonic()
        kill(crew)
        assert time.monotonic() - began < 1.0
