"""The workers of a run find each other along a tree of nodes."""

import asyncio
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.interfaces import Interface, Kind, loopback
from paceline.comm.signing import ForgedValue
from paceline.membership.channel import Channel
from paceline.membership.control import FAN_OUT
from paceline.membership.heartbeats import children_of, parent_of
from paceline.membership.messages import Arrivals
from paceline.membership.rendezvous import address_files, contact, node_rendezvous
from paceline.membership.rendezvous.address_files import (
    LOOKS_PER_SECOND,
    RendezvousTimeout,
    found_address,
    pauses_between_looks,
    publish_address,
    secret_of,
)
from paceline.membership.rendezvous.node_rendezvous import LEADER_VARIABLE, NodeRendezvous
from paceline.membership.rendezvous.node_tree import NodeSeat
from paceline.specs import Member, PacelineError, Placement, Roster, Run
from paceline.specs.base import Spec
from ranks import new_run


def place(rank: int, workers: int, per_node: int) -> Placement:
    return Placement(
        rank=rank,
        workers=workers,
        local_rank=rank % per_node,
        local_workers=per_node,
        node=f"n{rank // per_node}",
    )


def meet(
    run: Run,
    workers: int,
    per_node: int,
    port: int | None = None,
    late: Callable[[int], float] = lambda rank: 0.0,
) -> tuple[list[str], list[int]]:
    """All ranks, each in a thread, with sockets and files of their own: what each was told, and how
    often it looked into the folder."""

    def one(rank: int) -> tuple[str, int]:
        time.sleep(late(rank))
        here = place(rank, workers, per_node)
        with NodeRendezvous(run, here, port, interface=loopback()) as meeting:
            assert meeting.find_interface() == loopback()
            said = meeting.exchange(f"from {rank}", "; ".join)
            return said, meeting.looks

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(one, range(workers)))
    return [said for said, _ in found], [looks for _, looks in found]


def give_up_after(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (node_rendezvous, address_files):
        monkeypatch.setattr(module, "RENDEZVOUS_TIMEOUT_SECONDS", seconds)


@pytest.mark.parametrize(
    ("workers", "per_node"), [(2, 2), (3, 1), (6, 2), (7, 3), (40, 1), (72, 2)]
)
def test_everybody_is_told_what_all_say(tmp_path: Path, workers: int, per_node: int) -> None:
    run = new_run(tmp_path, workers)
    said, looks = meet(run, workers, per_node)
    assert said == ["; ".join(f"from {rank}" for rank in range(workers))] * workers
    assert not any(looks[rank] for rank in range(workers) if rank % per_node or rank == 0)
    nodes = -(-workers // per_node)
    published = [path.name for path in run.rendezvous.iterdir()]
    assert len(published) == (0 if nodes == 1 else 1 + (nodes - 2) // FAN_OUT)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_worker_whose_connection_is_lost_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, *, arrives: bool
) -> None:
    send, cut = Channel.send, threading.Event()

    def cut_once(channel: Channel, message: Spec) -> None:
        if isinstance(message, Arrivals) and min(message.said) == rank and not cut.is_set():
            cut.set()
            if arrives:
                send(channel, message)
            channel.close()
        else:
            send(channel, message)

    monkeypatch.setattr(Channel, "send", cut_once)
    said, _ = meet(new_run(tmp_path, 4), 4, 2)
    assert cut.is_set()
    assert said == ["from 0; from 1; from 2; from 3"] * 4


def test_while_worker_0_is_late_few_look_into_the_folder(tmp_path: Path) -> None:
    """Before, each of the 48 ranks looked about 41 times a second: 5,904 times in 3 s."""
    said, looks = meet(new_run(tmp_path, 48), 48, 8, late=lambda rank: 3.0 * (rank == 0))
    assert said == ["; ".join(f"from {rank}" for rank in range(48))] * 48
    assert sum(map(bool, looks)) == 5
    # Pauses of at least half of 50, 75, 112, 169, 253, 380, 500, 500, … ms: at most 14 in 3.5 s.
    assert max(looks) <= 18


@given(nodes=st.integers(1, 100_000), seconds=st.floats(1, 100))
def test_the_rate_of_looks_is_bounded_for_all_nodes_together(nodes: int, seconds: float) -> None:
    pauses, waited, looks = pauses_between_looks(nodes), 0.0, 0
    while (waited := waited + pauses.next_seconds()) <= seconds:
        looks += 1
    first_second = 20  # pauses grow from 50 ms
    assert looks * nodes <= max(LOOKS_PER_SECOND * seconds, nodes * (first_second + 4 * seconds))
    if nodes > LOOKS_PER_SECOND:
        assert looks * nodes <= LOOKS_PER_SECOND * seconds


@given(nodes=st.integers(1, 2000), per_node=st.integers(1, 8), number=st.integers(0, 1999))
def test_the_tree_is_that_of_the_heartbeats(nodes: int, per_node: int, number: int) -> None:
    number %= nodes
    seat = NodeSeat.of(place(number * per_node, nodes * per_node, per_node), is_flat=False)
    for child in seat.children:
        below = NodeSeat.of(place(child * per_node, nodes * per_node, per_node), is_flat=False)
        assert below.parent == number
    assert len(seat.children) <= FAN_OUT
    assert (seat.parent is None) == (number == 0)


def test_small_trees_are_those_of_the_heartbeats() -> None:
    for workers, per_node in ((70, 2), (40, 1), (9, 3)):
        roster = Roster(
            generation=0,
            members=tuple(
                Member(name=f"w{rank}", node=f"n{rank // per_node}", address="127.0.0.1", port=1)
                for rank in range(workers)
            ),
        )
        for rank in range(0, workers, per_node):
            seat = NodeSeat.of(place(rank, workers, per_node), is_flat=False)
            above = parent_of(roster, rank)
            assert seat.parent == (None if above is None else above // per_node)
            below = [*seat.local_ranks[1:], *seat.child_ranks]
            assert below == children_of(roster, rank)


def test_without_a_folder_all_contacts_ask_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv(LEADER_VARIABLE, f"127.0.0.1:{port}")
    run = new_run(tmp_path, 80)
    said, looks = meet(run, 80, 2)
    assert said == ["; ".join(f"from {rank}" for rank in range(80))] * 80
    assert not any(looks)
    assert not list(run.rendezvous.iterdir())


def test_where_all_nodes_have_names_they_are_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has an address of its own here, by which the nodes below it find it."""
    with socket.socket() as free:
        free.bind(("127.0.7.0", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv(LEADER_VARIABLE, f"127.0.7.{{node}}:{port}")
    asked: list[str] = []
    connect = asyncio.open_connection

    async def noted(host: str, port: int) -> object:
        asked.append(host)
        return await connect(host, port)

    monkeypatch.setattr(asyncio, "open_connection", noted)
    run = new_run(tmp_path, 80)

    def one(rank: int) -> str:
        address = f"127.0.7.{rank // 2}"
        own = Interface("lo", address, Kind.LOOPBACK)
        with NodeRendezvous(run, place(rank, 80, 2), interface=own) as meeting:
            assert meeting.find_interface().address == address
            return meeting.exchange(f"from {rank}", "; ".join)

    with ThreadPoolExecutor(80) as pool:
        assert (
            list(pool.map(one, range(80))) == ["; ".join(f"from {rank}" for rank in range(80))] * 80
        )
    assert set(asked) == {"127.0.7.0", "127.0.7.1"}
    assert not list(run.rendezvous.iterdir())


def test_a_name_without_a_port_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEADER_VARIABLE, "node-0")
    with pytest.raises(PacelineError, match="names no host and port"):
        NodeRendezvous(new_run(tmp_path, 2), place(1, 2, 1))


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        here = place(0, 2, 1)
        with (
            NodeRendezvous(new_run(tmp_path, 2), here, port, interface=loopback()) as meeting,
            pytest.raises(PacelineError, match=f"port {port} .* is taken"),
        ):
            meeting.find_interface()


def test_missing_workers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up_after(0.5, monkeypatch)
    run, here = new_run(tmp_path, 6), place(0, 6, 2)
    with NodeRendezvous(run, here, interface=loopback()) as meeting:
        meeting.find_interface()
        with pytest.raises(RendezvousTimeout, match=r"workers \[1, 2, 4\] did not arrive"):
            meeting.exchange("", "".join)
    with (
        NodeRendezvous(run, place(5, 6, 2)) as meeting,
        pytest.raises(RendezvousTimeout, match="this node's first worker cannot be reached"),
    ):
        meeting.find_interface()


def test_a_forged_address_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2)
    where = json.dumps(["127.0.0.1", 1])
    (run.rendezvous / "0.json").write_text(json.dumps({"where": where, "signature": "00" * 32}))
    with (
        NodeRendezvous(run, place(1, 2, 1), interface=loopback()) as meeting,
        pytest.raises(ForgedValue),
    ):
        meeting.find_interface()


def test_an_address_of_another_node_or_generation_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2)
    secret = secret_of(run)
    publish_address(run, secret, 0, 0, ("127.0.0.1", 7))
    assert found_address(run, secret, 0, 0) == ("127.0.0.1", 7)
    assert found_address(run, secret, 0, 1) is None
    for name in ("0-1.json", "1.json"):
        (run.rendezvous / name).write_bytes((run.rendezvous / "0.json").read_bytes())
    with pytest.raises(ForgedValue):
        found_address(run, secret, 0, 1)
    with pytest.raises(ForgedValue):
        found_address(run, secret, 1, 0)


def test_the_listener_is_bound_to_one_interface_and_proves_the_secret(tmp_path: Path) -> None:
    """Strangers send garbage, or hang up, on both sockets: the workers meet all the same."""
    run = new_run(tmp_path, 4)
    secret = secret_of(run)
    local = contact.local_name(secret, 0, NodeSeat.of(place(0, 4, 2), is_flat=False))
    bothered, over = threading.Event(), threading.Event()

    def bother() -> None:
        while not over.is_set():
            found = found_address(run, secret, 0, 0)
            for address in (found, local):
                kind = socket.AF_UNIX if address is local else socket.AF_INET
                with socket.socket(kind, socket.SOCK_STREAM) as stranger:
                    try:
                        assert address is not None
                        assert address is local or address[0] == "127.0.0.1"
                        stranger.connect(address)
                        stranger.sendall(os.urandom(200))
                        if found:
                            bothered.set()
                    except (OSError, AssertionError):
                        continue
            time.sleep(0.01)

    bothering = threading.Thread(target=bother)
    bothering.start()
    try:
        said, _ = meet(run, 4, 2, late=lambda rank: bothered.wait(10) * 0.0 if rank else 0.0)
    finally:
        over.set()
        bothering.join()
    assert said == ["from 0; from 1; from 2; from 3"] * 4


def test_a_worker_without_the_secret_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the name of the contact's socket, which a worker derives from the secret."""
    give_up_after(1.0, monkeypatch)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    run, other = new_run(tmp_path / "one", 2), new_run(tmp_path / "other", 2)
    name = contact.local_name(secret_of(run), 0, NodeSeat.of(place(0, 2, 2), is_flat=False))
    monkeypatch.setattr(node_rendezvous, "local_name", lambda *_: name)

    def start(rank: int) -> str:
        with NodeRendezvous((run, other)[rank], place(rank, 2, 2)) as meeting:
            meeting.find_interface()
            return meeting.exchange("", "".join)

    with ThreadPoolExecutor(2) as pool:
        errors = [each.exception() for each in [pool.submit(start, rank) for rank in range(2)]]
    assert "workers [1] did not arrive" in str(errors[0])
    assert "cannot be reached" in str(errors[1])


def test_a_folder_that_fails_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[OSError] = []

    def fails_once(run: Run, *more: Any) -> tuple[str, int] | None:
        if not failed:
            failed.append(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
            raise failed[0]
        return found_address(run, *more)

    monkeypatch.setattr(node_rendezvous, "found_address", fails_once)
    said, _ = meet(new_run(tmp_path, 3), 3, 1)
    assert failed
    assert said == ["from 0; from 1; from 2"] * 3
