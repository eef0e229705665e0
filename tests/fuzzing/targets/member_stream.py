"""The bytes that a member receives from a connection, as a stranger may send them."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from fuzzing.target import Target
from paceline.membership.channel import Channel
from paceline.membership.messages import Hello

SECRET, NONCE = b"s" * 32, b"n" * 32


class _Sent:
    """The other half of a connection."""

    def __init__(self) -> None:
        self.bytes = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.bytes += data


def consume(data: bytes, folder: Path) -> None:
    """Receive messages until the stream ends."""
    del folder

    async def listen() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        end = await Channel.open(reader, cast("Any", _Sent()), SECRET, initiator=False)
        for _ in range(3):
            await end.receive()

    with suppress(ConnectionError):
        asyncio.run(listen())


def seeds() -> list[bytes]:
    """Return a hello to an end that has sent another nonce."""

    async def speak() -> bytes:
        reader, writer = asyncio.StreamReader(), _Sent()
        reader.feed_data(NONCE)
        end = await Channel.open(reader, cast("Any", writer), SECRET, initiator=True)
        end.send(Hello(name="a", generation=3, purpose="ask"))
        return writer.bytes

    return [asyncio.run(speak())]


TARGET = Target(seeds, consume)
