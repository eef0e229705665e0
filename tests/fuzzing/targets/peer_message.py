"""Messages of peer memory, signed by a member."""

import socket
import time
from contextlib import suppress
from pathlib import Path

from fuzzing.target import Target
from paceline.comm.signing import Signing
from paceline.peers.inventory import Moment
from paceline.peers.protocol import AskPart, Wire

SECRET = b"s" * 32


def consume(data: bytes, folder: Path) -> None:
    """Receive one signed message."""
    del folder
    here, there = socket.socketpair()
    with here, there:
        nonce = b"n" * 32
        there.sendall(nonce)
        wire = Wire(here, SECRET, called=False, deadline=time.monotonic() + 5)
        theirs = there.recv(32, socket.MSG_WAITALL)
        signing = Signing(SECRET, b"peer memory", mine=nonce, theirs=theirs, called=True)
        there.sendall(len(data).to_bytes(4, "big") + signing.sign(data) + data[: 60 << 10])
        there.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            wire.receive_message()


def seeds() -> list[bytes]:
    """Return a request."""
    moment = Moment(generation=0, step=10, workers=2)
    question = AskPart(generation=0, moment=moment, rank=0, wait_seconds=0)
    return [question.model_dump_json().encode()]


TARGET = Target(seeds, consume)
