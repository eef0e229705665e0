"""A signed channel between two members of a run: JSON messages over one TCP connection.

Messages are authenticated, not encrypted: anybody on the network can read them.
"""

import asyncio
import zlib
from contextlib import suppress

from paceline.comm.signing import MAC_BYTES, NONCE_BYTES, Forged, Signing, new_nonce
from paceline.membership.messages import MESSAGES, Heartbeat, Message
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
        self._has_sent = False

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
        self._write(message.model_dump_json().encode())

    def send_after_heartbeat(self, message: Spec) -> None:
        """Send a message, after a heartbeat if it is too long to be the first.

        The other end reads no long message before it knows that this end is a member.
        """
        body = message.model_dump_json().encode()
        if len(body) > MAX_FIRST_BYTES and not self._has_sent:
            self.send(Heartbeat())
        self._write(body)

    def _write(self, body: bytes) -> None:
        if self._writer.is_closing():
            return
        self._has_sent = True
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

    def finish(self) -> None:
        """Send nothing more, but receive until the other end closes the connection."""
        if not self._writer.is_closing():
            with suppress(OSError):  # the other end has reset it, and this one reads that soon
                self._writer.write_eof()

    def close(self) -> None:
        """Close the connection after all sent messages have left."""
        self._writer.close()


class KeptChannels:
    """Channels that are kept for the next question to the same member, for at most some seconds.

    A regroup asks every member three questions; a new connection takes longer than a question.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[str, tuple[Channel, asyncio.TimerHandle]] = {}

    def add(self, name: str, channel: Channel) -> None:
        """Keep a channel to a member, on which nothing is under way."""
        self._close(name)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._close, name)
        self._kept[name] = channel, timer

    def pop(self, name: str) -> Channel | None:
        """Return the channel to a member, if one is kept. The other end may have closed it."""
        if name not in self._kept:
            return None
        channel, timer = self._kept.pop(name)
        timer.cancel()
        return channel

    def close(self) -> None:
        """Close all of them."""
        for name in list(self._kept):
            self._close(name)

    def _close(self, name: str) -> None:
        channel = self.pop(name)
        if channel is not None:
            channel.close()


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
