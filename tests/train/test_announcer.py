"""Leaders of generations are published, also after the disk was full."""

import io
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from full_disk import at_most
from paceline.membership.rendezvous.address_files import announce_leader, found_leader, secret_of
from paceline.specs import Member, Roster
from paceline.train.elastic import announcer
from paceline.train.elastic.announcer import Announcer
from ranks import new_run


def leader_of(generation: int) -> Roster:
    member = Member(name=f"w{generation}", node="n1", address="127.0.0.1", port=4000)
    return Roster(generation=generation, members=(member,), training=1)


def test_a_leader_is_published_once_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path, 2)
    secret = secret_of(run)
    publisher = Announcer(run, secret)
    first, second = leader_of(0), leader_of(1)
    publisher.announce(first, first.members[0])
    assert found_leader(run, secret) == first.members[0]
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # a file here would be full, too
    with at_most(10):
        publisher.announce(second, second.members[0])
        assert found_leader(run, secret) == first.members[0]
    deadline = time.monotonic() + 30
    while found_leader(run, secret) != second.members[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_a_folder_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane was silent meanwhile: others took the first worker for lost."""
    run, stalls = new_run(tmp_path, 2), threading.Event()

    def stalled(*of: Any) -> None:
        stalls.wait()
        announce_leader(*of)

    monkeypatch.setattr(announcer, "announce_leader", stalled)
    later = threading.Timer(5, stalls.set)
    later.start()
    began, first = time.monotonic(), leader_of(0)
    Announcer(run, secret_of(run)).announce(first, first.members[0])
    assert time.monotonic() - began < 0.5
    assert found_leader(run, secret_of(run)) is None
    stalls.set()
    later.cancel()
    deadline = time.monotonic() + 30
    while found_leader(run, secret_of(run)) != first.members[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
