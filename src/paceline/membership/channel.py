"""A signed channel between two members of a run: JSON messages over one TCP connection.

Messages are authenticated, not encrypted: anybody on the network can read them.
"""

import asyncio
import zlib

from paceline.comm.signing import MAC_BYTES, NONCE_BYTES, Forged, Signing, new_nonce
from paceline.membership.messages import MESSAGES, Message
from paceline.specs.base import Spec

MAX_BYTES = 16 << 20
"""Maximum size of a message on the wire: enough for 100,000 members and their facts."""
MAX_DECOMPRESSED_BYTES = 256 << 20
MAX_FIRST_BYTES = 4 << 10
"""Maximum size of the first message, read before the other end has proved that it is a member."""
_LENGTH_BYTES = 4
_COMPRESS_BYTES = 32 << 10
"""Longer messages are compressed. A roster's members are similar: it shrinks to a tenth."""


def parse(body: bytes) -> Message:
    """Return the message in these bytes, or raise `Forged`."""
    try:
        return MESSAGES.validate_json(body)
    except ValueError:
        raise Forged("received an invalid message") from None


class Channel:
    """One end of a signed channel."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, signing: Signing
    ) -> None:
        self._reader, self._writer, self._signing = reader, writer, signing

    @classmethod
    async def open(
        cls,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        secret: bytes,
        *,
        initiator: bool,
    ) -> "Channel":
        """Open a channel over a new connection; `initiator` is true on the end that made it."""
        nonce = new_nonce()
        writer.write(nonce)
        other = await _read(reader, NONCE_BYTES)
        signing = Signing(secret, b"control", mine=nonce, theirs=other, called=initiator)
        return cls(reader, writer, signing)

    def send(self, message: Spec) -> None:
        """Send a message without waiting for delivery."""
        if self._writer.is_closing():
            return
        body = message.model_dump_json().encode()
        if len(body) > _COMPRESS_BYTES:
            body = zlib.compress(body, level=1)
        self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
        self._writer.write(self._signing.sign(body) + body)

    async def receive(self) -> Message:
        """Return the next message, or raise a ConnectionError."""
        length = int.from_bytes(await _read(self._reader, _LENGTH_BYTES), "big")
        if length > (MAX_BYTES if self._signing.heard else MAX_FIRST_BYTES):
            raise Forged(f"a message of {length} bytes exceeds the limit")
        mac = await _read(self._reader, MAC_BYTES)
        body = await _read(self._reader, length)
        self._signing.check(mac, body)
        return parse(_decompressed(body))

    async def drain(self) -> None:
        """Wait until all sent messages have left this process."""
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection after all sent messages have left."""
        self._writer.close()


def _decompressed(body: bytes) -> bytes:
    if body[:1] == b"{":
        return body
    decompressor = zlib.decompressobj()
    try:
        found = decompressor.decompress(body, MAX_DECOMPRESSED_BYTES)
    except zlib.error:
        raise Forged("received an invalid message") from None
    if not decompressor.eof:
        raise Forged("a decompressed message exceeds the limit")
    return found


async def _read(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the other end closed the connection") from None
