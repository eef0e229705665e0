"""The protocol by which members read each other's memory.

Requests are signed JSON; answers are followed by raw bytes. No member can write into another's
memory: the member that stores a copy requests it. The raw bytes are not signed, but the signed
message before them carries their BLAKE3 hash.
"""

import math
import socket
import time
from collections.abc import Iterable
from typing import Annotated, Literal

from blake3 import blake3
from pydantic import Field, NonNegativeInt, TypeAdapter, ValidationError

from paceline.comm.signing import MAC_BYTES, NONCE_BYTES, Forged, Signing, new_nonce
from paceline.peers.inventory import Moment, Row
from paceline.specs.base import Spec

MOST_MESSAGE_BYTES = 64 << 10
IDLE_SECONDS = 60.0
"""How long a member keeps a connection on which it is asked nothing."""
_LENGTH_BYTES = 4
_CHUNK_BYTES = 1 << 20
"""Small enough to hash while still in the CPU cache. The send timeout applies to each chunk."""


class _Ask(Spec):
    generation: NonNegativeInt
    """The generation of the requester."""
    moment: Moment


class AskPart(_Ask):
    """Request for the description of a rank's part: its files and tensors."""

    kind: Literal["part"] = "part"
    rank: NonNegativeInt
    wait_seconds: float = Field(ge=0, le=600)
    """Maximum time to wait until the part exists."""


class AskBytes(_Ask):
    """Request for a byte range of a rank's concatenated part files, or of a parity row."""

    kind: Literal["bytes"] = "bytes"
    of: NonNegativeInt | Row
    begin: NonNegativeInt
    bytes: NonNegativeInt


class AskPage(_Ask):
    """Request for a page that the receiver makes for a restore; an empty answer means not yet."""

    kind: Literal["page"] = "page"
    number: int
    wait_seconds: float = Field(ge=0, le=600)


class Answer(Spec):
    """Announcement that `bytes` bytes follow."""

    kind: Literal["answer"] = "answer"
    bytes: NonNegativeInt
    blake3: str = Field(min_length=64, max_length=64)


class Refusal(Spec):
    """Refusal of a request, with the reason."""

    kind: Literal["refusal"] = "refusal"
    why: str


Question = AskPart | AskBytes | AskPage
_Message = Annotated[Question | Answer | Refusal, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Question | Answer | Refusal] = TypeAdapter(_Message)


class Wire:
    """One connection; `called` is true on the end that opened it."""

    def __init__(
        self, connection: socket.socket, secret: bytes, *, called: bool, deadline: float
    ) -> None:
        """Exchange nonces; until `trust`, everything must arrive before the deadline."""
        self._connection, self._deadline = connection, deadline
        mine = new_nonce()
        connection.sendall(mine)  # fits in the socket's buffer
        theirs = self._exactly(NONCE_BYTES)
        self._signing = Signing(secret, b"peer memory", mine=mine, theirs=theirs, called=called)

    def trust(self, patience_seconds: float) -> None:
        """Replace the deadline by a timeout per read, once the other end has proved the secret."""
        self._deadline = math.inf
        self._connection.settimeout(patience_seconds)

    def send_message(self, message: Spec) -> None:
        """Send a signed message."""
        body = message.model_dump_json().encode()
        head = len(body).to_bytes(_LENGTH_BYTES, "big")
        self._connection.sendall(head + self._signing.sign(body) + body)

    def receive_message(self) -> Question | Answer | Refusal:
        """Receive the next message; raise a connection error if the other end has closed."""
        length = int.from_bytes(self._exactly(_LENGTH_BYTES), "big")
        if length > MOST_MESSAGE_BYTES:
            raise Forged(f"a message of {length} bytes exceeds the limit")
        mac = self._exactly(MAC_BYTES)
        body = self._exactly(length)
        self._signing.check(mac, body)
        try:
            return _ADAPTER.validate_json(body)
        except ValidationError as error:
            raise Forged(f"received an invalid message ({error.error_count()} errors)") from None

    def send(self, parts: Iterable[memoryview]) -> None:
        """Send the announced bytes."""
        for part in parts:
            for begin in range(0, len(part), _CHUNK_BYTES):
                self._connection.sendall(part[begin : begin + _CHUNK_BYTES])

    def receive(self, into: memoryview) -> str:
        """Fill `into` with the announced bytes and return their BLAKE3 hash."""
        digest, at = blake3(), 0
        while at < len(into):
            count = self._connection.recv_into(into[at : at + _CHUNK_BYTES])
            if not count:
                raise ConnectionResetError("the other end is gone")
            digest.update(into[at : at + count])
            at += count
        return digest.hexdigest()

    def _exactly(self, count: int) -> bytes:
        found = bytearray(count)
        at = 0
        while at < count:
            if self._deadline < math.inf:
                self._connection.settimeout(max(1e-3, self._deadline - time.monotonic()))
            received = self._connection.recv_into(memoryview(found)[at:])
            if not received:
                raise ConnectionResetError("the other end is gone")
            at += received
        return bytes(found)
