"""Those who are no peers: what is forged, repeated, too large or no message gets no answer."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.comm.signing import MAC_BYTES, NONCE_BYTES, Forged, Signing, new_nonce
from paceline.peers.inventory import Moment
from paceline.peers.memory_client import PeerFailed, Source
from paceline.peers.peer_memory import Copied
from paceline.peers.protocol import MOST_MESSAGE_BYTES, Answer, AskBytes, AskPart, Wire
from paceline.specs.base import Spec
from peers.crew import SECRET, Crew

MOMENT = Moment(generation=0, step=10, workers=2)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew("ab")
    made.copy(10)
    yield made
    made.close()


class Raw:
    """An end of a connection that says what it likes."""

    def __init__(self, port: int, secret: bytes = SECRET) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), 5)
        mine = new_nonce()
        self.connection.sendall(mine)
        theirs = self.connection.recv(NONCE_BYTES, socket.MSG_WAITALL)
        self.signing = Signing(secret, b"peer memory", mine=mine, theirs=theirs, called=True)

    def frame(self, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + self.signing.sign(body) + body

    def ended(self) -> bool:
        """Whether the other end hangs up without a word."""
        with self.connection:
            return _hung_up(self.connection)


def ask(**changes: object) -> bytes:
    question = AskPart(generation=0, moment=MOMENT, rank=0, wait_seconds=0)
    return question.model_copy(update=changes).model_dump_json().encode()


def still_serves(crew: Crew) -> bool:
    source = Source(crew.peers["member 0"], SECRET, 0, 5)
    try:
        return source.description(MOMENT, 0).head.step == 10
    finally:
        source.close()


def test_who_does_not_know_the_secret_gets_nothing(crew: Crew) -> None:
    raw = Raw(crew.members["member 0"].port, b"another job's")
    raw.connection.sendall(raw.frame(ask()))
    assert raw.ended()
    with pytest.raises(PeerFailed, match="on a: "):
        Source(crew.peers["member 0"], b"another job's", 0, 5).description(MOMENT, 0)
    assert still_serves(crew)


def test_nothing_is_heard_twice(crew: Crew) -> None:
    raw = Raw(crew.members["member 0"].port)
    frame = raw.frame(ask())
    raw.connection.sendall(frame)
    length = int.from_bytes(raw.connection.recv(4, socket.MSG_WAITALL), "big")
    raw.connection.recv(MAC_BYTES, socket.MSG_WAITALL)
    answer = Answer.model_validate_json(raw.connection.recv(length, socket.MSG_WAITALL))
    raw.connection.recv(answer.bytes, socket.MSG_WAITALL)
    raw.connection.sendall(frame)
    assert raw.ended()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[" * 10_000,
        b"\xff\xfe",
        Answer(bytes=1, blake3="0" * 64).model_dump_json().encode(),
        ask(rank=-1),
        ask(wait_seconds=1e9),
        ask() + b"x",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_signed_nonsense_ends_the_connection(body: bytes, crew: Crew) -> None:
    raw = Raw(crew.members["member 0"].port)
    raw.connection.sendall(raw.frame(body))
    assert raw.ended()
    assert still_serves(crew)


def test_what_is_announced_too_large_is_not_waited_for(crew: Crew) -> None:
    raw = Raw(crew.members["member 0"].port)
    raw.connection.sendall((MOST_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    assert raw.ended()


def test_strangers_that_say_nothing_do_not_pile_up(crew: Crew) -> None:
    port = crew.members["member 0"].port
    silent = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(80)]
    try:
        for one in silent[:16]:  # the oldest make room for the newest 64
            one.settimeout(5)
            assert len(one.recv(NONCE_BYTES, socket.MSG_WAITALL)) == NONCE_BYTES
            assert _hung_up(one)
    finally:
        for one in silent:
            one.close()


def test_strangers_that_say_nothing_do_not_stop_copies(crew: Crew) -> None:
    ports = [member.port for member in crew.members.values()]
    silent = [socket.create_connection(("127.0.0.1", port), 5) for port in ports * 80]
    try:
        for step in range(11, 16):
            crew.copy(step)
            for told in crew.told.values():
                assert isinstance(told[step], Copied), told[step]
    finally:
        for one in silent:
            one.close()


def _hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


KEYS = st.sampled_from(["kind", "generation", "moment", "rank", "of", "begin", "bytes", "blake3"])
VALUES = st.integers() | st.text(max_size=3) | st.none() | st.lists(st.integers(), max_size=2)


def _almost(changes: dict[str, object]) -> bytes:
    """A question in which something is something else."""
    question = AskBytes(generation=0, moment=MOMENT, of=0, begin=0, bytes=1)
    return json.dumps(question.model_dump(mode="json") | changes).encode()


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(garbage: bytes) -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        near.sendall(new_nonce() + garbage)
        near.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            _wire(far).receive_message()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.builds(_almost, st.dictionaries(KEYS, VALUES)))
def test_any_signed_bytes_are_a_message_or_refused(body: bytes) -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        mine = new_nonce()
        near.sendall(mine)
        wire = _wire(far)
        theirs = near.recv(NONCE_BYTES)
        signing = Signing(SECRET, b"peer memory", mine=mine, theirs=theirs, called=True)
        near.sendall(len(body).to_bytes(4, "big") + signing.sign(body) + body)
        with suppress(Forged):
            assert isinstance(wire.receive_message(), Spec)


def _wire(connection: socket.socket) -> Wire:
    return Wire(connection, SECRET, called=False, deadline=time.monotonic() + 5)


def test_what_is_not_there_is_refused_and_the_connection_stays(crew: Crew) -> None:
    source = Source(crew.peers["member 0"], SECRET, 0, 5)
    with pytest.raises(PeerFailed, match="no copy of step 11 of generation 0 here"):
        source.description(MOMENT.model_copy(update={"step": 11}), 0)
    wire = source._wire
    wire.send_message(AskBytes(generation=0, moment=MOMENT, of=0, begin=10**15, bytes=1))
    with pytest.raises(PeerFailed, match="no copy of step"):
        source.take(memoryview(bytearray(1)))
    assert source.description(MOMENT, 0).head.step == 10
    source.close()
