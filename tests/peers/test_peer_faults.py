"""Peers that die, hang or lie: a copy counts whole or not at all, and memory stays."""

import gc
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from paceline.peers import memory_client, memory_server
from paceline.peers.inventory import Moment
from paceline.peers.memory_client import Peer, PeerFailed
from paceline.peers.memory_file import MemoryFile
from paceline.peers.part_files import PartFiles
from paceline.peers.peer_memory import Copied, PeerMemory
from paceline.peers.protocol import Wire
from paceline.peers.restored_storage import PartLost
from peers.crew import SECRET, Crew, snapshot_of


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew("ab")
    made.copy(10)
    yield made
    made.close()


def test_bytes_that_are_not_those_of_the_owner_do_not_count(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Wire.send

    def flipped(wire: Wire, parts: Iterable[memoryview]) -> None:
        sent = bytearray(b"".join(parts))
        sent[-1] ^= 1
        send(wire, [memoryview(sent)])

    monkeypatch.setattr(Wire, "send", flipped)
    crew.copy(20)
    monkeypatch.undo()
    for told in crew.told.values():
        assert "received bytes do not match their announced hash" in str(told[20])
    crew.lose("member 1")
    assert crew.restored("member 0") == 10


def test_a_peer_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    told: dict[int, Copied | str] = {}
    memory = PeerMemory(SECRET, "127.0.0.1", told.__setitem__)
    process = subprocess.Popen(
        [sys.executable, "-m", "peers.half_a_copy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        peers = [
            Peer("127.0.0.1", memory.port, "a"),
            Peer("127.0.0.1", int(process.stdout.readline()), "b"),
        ]
        process.stdin.write(f"{memory.port}\n")
        process.stdin.flush()
        memory.join(0, 0, peers, step=0, parity_group=0, parity=1)
        memory.copy(snapshot_of(20, 0, 2))
        assert process.stdout.readline() == "half\n"
        assert not told  # training would go on meanwhile
        process.kill()
        memory.wait()
        assert re.search(r"on b: .*(gone|reset)", str(told[20]))
        (held,) = memory.inventory().held
        assert (held.own, held.copies) == (0, ())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        memory.close()


def test_a_copy_from_a_peer_that_hangs_can_be_interrupted() -> None:
    crew = Crew("ab", patience_seconds=100)
    try:
        crew.members["member 0"].copy(snapshot_of(10, 0, 2))  # member 1 never does
        began = time.monotonic()
        timer = threading.Timer(0.2, crew.members["member 0"].interrupt)
        timer.start()
        crew.wait()
        timer.join()
        assert time.monotonic() - began < 10
        assert isinstance(crew.told["member 0"][10], str)
    finally:
        crew.close()


def test_a_new_generation_does_not_wait_for_a_copy_of_the_old_one() -> None:
    crew = Crew("ab", patience_seconds=100)
    try:
        crew.copy(10)
        # Somebody takes the connection and says nothing at all, as a stopped process does.
        with socket.create_server(("127.0.0.1", 0)) as stopped:
            crew.peers["member 1"] = Peer("127.0.0.1", stopped.getsockname()[1], "b")
            crew.join(1, ["member 0", "member 1"], step=10)
            crew.members["member 0"].copy(snapshot_of(20, 0, 2))
            thread = crew.members["member 0"]._thread
            assert thread is not None
            began = time.monotonic()
            crew.join(2, ["member 0"], step=10)
            assert time.monotonic() - began < 2
        thread.join(10)
        assert isinstance(crew.told["member 0"][20], str)
        assert [each.moment.step for each in crew.members["member 0"].inventory().held] == [10]
        crew.copy(20)
        assert isinstance(crew.told["member 0"][20], Copied)
    finally:
        crew.close()


def test_who_fails_while_a_state_is_read_is_left_out() -> None:
    crew = Crew("abcd", parity_group=4)
    try:
        crew.copy(10)
        # Its listener is gone, but what it had is still counted on.
        gone = crew.members["member 3"]
        gone._server.close()
        assert crew.restored("member 0") == 10
        crew.lose("member 2")
        with pytest.raises(OSError, match="too few peers are left to restore step 10"):
            crew.restored("member 0")
    finally:
        crew.close()


def flip(stored: PartFiles | MemoryFile | None) -> None:
    """A bit in memory is no longer what it was."""
    assert stored is not None
    for file in stored.files.values() if isinstance(stored, PartFiles) else [stored]:
        file.view[file.size - 1] ^= 1


@pytest.mark.parametrize("parity_group", [0, 3])
def test_what_has_changed_in_this_memory_is_taken_from_others(parity_group: int) -> None:
    crew = Crew("abc", parity_group=parity_group)
    try:
        crew.copy(10)
        moment = crew.newest()
        assert moment is not None
        flip(crew.members["member 2"].copies.stored(moment, 2))
        assert crew.restored("member 2") == 10
        if parity_group:  # with a worker lost as well, nothing is left to compute it from
            crew.lose("member 1")
            with pytest.raises(PartLost, match="is no longer available"):
                crew.restored("member 2")
    finally:
        crew.close()


def test_what_is_computed_from_changed_parity_is_not_taken() -> None:
    crew = Crew("abc", parity_group=3)
    try:
        crew.copy(10)
        moment = crew.newest()
        assert moment is not None
        copies = crew.members["member 0"].copies
        (held,) = copies.inventory().held
        for row in held.rows:
            shelf_row = copies.stored(moment, row)
            assert isinstance(shelf_row, MemoryFile)
            shelf_row.view[0] ^= 1
        crew.lose("member 2")
        with pytest.raises(PartLost, match="could not be rebuilt"):
            crew.restored("member 1")
    finally:
        crew.close()


def test_reading_a_state_can_be_interrupted(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def never(wire: Wire, parts: Iterable[memoryview]) -> None:
        asked.set()

    monkeypatch.setattr(Wire, "send", never)
    crew.add("spare", "c")

    def interrupt() -> None:
        asked.wait()
        crew.members["spare"].interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(PartLost, match="too few peers are left"):
        crew.restored("spare")
    thread.join()


@pytest.mark.parametrize("parity_group", [0, pytest.param(3, marks=pytest.mark.nightly)])
def test_nothing_grows(parity_group: int) -> None:
    crew = Crew("abc", parity_group=parity_group)
    try:
        for step in range(1, 20):
            crew.copy(step)
        before = _in_use()
        for step in range(20, 220):
            crew.copy(step)
        descriptors, threads, shared_bytes = _in_use()
        assert descriptors <= before[0] + 3  # connections that are just ending
        assert threads <= before[1] + 3
        assert shared_bytes <= before[2] + (1 << 20)
    finally:
        crew.close()


def test_nothing_is_left() -> None:
    before = _in_use()
    crew = Crew("abc", parity_group=3)
    crew.copy(10)
    port = crew.members["member 0"].port
    crew.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    assert _in_use()[:2] == before[:2]


def _in_use() -> tuple[int, int, int]:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    shared = re.search(r"RssShmem:\s+(\d+) kB", status)
    assert shared is not None
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return descriptors, threading.active_count(), int(shared[1]) << 10


def test_a_late_worker_does_not_cost_the_connections_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A parity row needs the parts of several workers, of which one has its part later."""
    monkeypatch.setattr(memory_server, "PROOF_SECONDS", 0.3)
    crew = Crew("abcd", parity_group=4)
    for name, rank in crew.ranks.items():
        if rank == 1:
            time.sleep(1)
        crew.members[name].copy(snapshot_of(10, rank, 4))
    crew.wait()
    told = [each[10] for each in crew.told.values()]
    crew.close()
    assert all(isinstance(each, Copied) for each in told), told


def test_a_peer_that_has_closed_an_idle_connection_has_not_failed(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_server, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr(memory_client, "IDLE_SECONDS", 0.3)
    calls = crew.members["member 0"].calls(0, patience_seconds=5)
    moment = Moment(generation=0, step=10, workers=2)
    for _ in range(2):
        calls.source(crew.peers["member 1"]).description(moment, 1)
        time.sleep(1)  # while this member reads a large file of another
    calls.close()


def test_a_connection_without_a_thread_does_not_cost_the_next(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the system limits the number of threads."""
    start, refused = threading.Thread.start, list[str]()

    def refuses_one(thread: threading.Thread) -> None:
        if thread.name == "peer memory" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses_one)
    calls = crew.members["member 0"].calls(0, patience_seconds=1)
    peer, moment = crew.peers["member 1"], Moment(generation=0, step=10, workers=2)
    with pytest.raises(PeerFailed):
        calls.source(peer)
    assert calls.source(peer).description(moment, 1).part.worker == 1
    calls.close()
