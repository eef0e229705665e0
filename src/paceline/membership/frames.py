"""What members of a run say to each other: JSON, signed, over one connection.

Nothing is hidden: what is said here, anybody on the network may read.
"""

import asyncio
import zlib

from paceline.comm.signing import MAC_BYTES, NONCE_BYTES, Forged, Signing, new_nonce
from paceline.membership.messages import Message, read
from paceline.specs.base import Spec

MOST_BYTES = 16 << 20
"""Of a message as it is sent: 100,000 members, and what their trainings know."""
MOST_BYTES_UNPACKED = 256 << 20
MOST_BYTES_OF_A_STRANGER = 4 << 10
"""Of the first message, which alone is read before the other end has proved who it is."""
_LENGTH_BYTES = 4
_PACKED_BYTES = 32 << 10
"""Longer messages are packed: rosters, in which members are much alike, to a tenth."""


def parsed(body: bytes) -> Message:
    """The message in these bytes."""
    try:
        return read(body)
    except ValueError:
        raise Forged("what should be a message is none") from None


class Line:
    """One connection between two members."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, signing: Signing
    ) -> None:
        self._reader, self._writer, self._signing = reader, writer, signing

    @classmethod
    async def opened(
        cls,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        secret: bytes,
        *,
        called: bool,
    ) -> "Line":
        """The line over a new connection; `called` by the end that has asked for it."""
        nonce = new_nonce()
        writer.write(nonce)
        other = await _exactly(reader, NONCE_BYTES)
        signing = Signing(secret, b"control", mine=nonce, theirs=other, called=called)
        return cls(reader, writer, signing)

    def say(self, message: Spec) -> None:
        """Send a message; it may be lost with the connection."""
        if self._writer.is_closing():
            return
        body = message.model_dump_json().encode()
        if len(body) > _PACKED_BYTES:
            body = zlib.compress(body, level=1)
        self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
        self._writer.write(self._signing.sign(body) + body)

    async def hear(self) -> Message:
        """The next message; an error of the connection where there is none any more."""
        length = int.from_bytes(await _exactly(self._reader, _LENGTH_BYTES), "big")
        if length > (MOST_BYTES if self._signing.heard else MOST_BYTES_OF_A_STRANGER):
            raise Forged(f"a message of {length} bytes was announced")
        mac = await _exactly(self._reader, MAC_BYTES)
        body = await _exactly(self._reader, length)
        self._signing.check(mac, body)
        return parsed(_unpacked(body))

    async def drain(self) -> None:
        """Until what was said has left this process."""
        await self._writer.drain()

    def close(self) -> None:
        """End the connection; what was said before still goes out."""
        self._writer.close()


def _unpacked(body: bytes) -> bytes:
    if body[:1] == b"{":
        return body
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(body, MOST_BYTES_UNPACKED)
    except zlib.error:
        raise Forged("what should be a message is none") from None
    if not unpacking.eof:
        raise Forged("a message is longer than any has to be")
    return found


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the other end is gone") from None
