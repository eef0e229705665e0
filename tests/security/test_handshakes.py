"""A real listener, with real strangers before it."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import psutil
import pytest

from paceline.comm.signing import Forged
from paceline.membership.channel import Channel
from paceline.membership.handshakes import Handshakes
from paceline.membership.messages import Goodbye, Hello
from paceline.specs.base import Spec

SECRET = b"s" * 32
HELLO = Hello(name="a", generation=3, purpose="ask")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Listener:
    """Lets members in, and counts who was let in and who was not."""

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes
        self.members: list[Hello] = []
        self.refused: list[ConnectionError] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channel, hello = await self._handshakes.accept(reader, writer)
        except ConnectionError as error:
            self.refused.append(error)
            return
        self.members.append(hello)
        channel.close()

    async def has(self, *, members: int = 0, refused: int = 0) -> None:
        async with asyncio.timeout(10):
            while len(self.members) < members or len(self.refused) < refused:
                await asyncio.sleep(0.005)


def beset(handshakes: Handshakes, attack: Callable[[int, Listener], Awaitable[None]]) -> Listener:
    """A listener during an attack on its port, and a member that comes after it."""

    async def scene() -> Listener:
        listener = Listener(handshakes)
        server = await asyncio.start_server(listener.answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await attack(port, listener)
            await call(port, HELLO)
            await listener.has(members=1)
        return listener

    return asyncio.run(scene())


async def strangers(port: int, count: int) -> list[Streams]:
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def call(port: int, message: Spec, secret: bytes = SECRET) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    channel = await Channel.open(reader, writer, secret, initiator=True)
    channel.send(message)
    await reader.read()
    channel.close()


def test_many_that_say_nothing_keep_no_member_out() -> None:
    async def attack(port: int, listener: Listener) -> None:
        held = await strangers(port, 300)
        await listener.has(refused=300 - 16)
        assert len(psutil.Process().net_connections("tcp")) <= 1 + 300 + 2 * 16
        for _, writer in held[:-4]:
            writer.transport.abort()

    listener = beset(Handshakes(SECRET, most=16, seconds=60), attack)
    assert listener.members == [HELLO]


def test_who_says_nothing_is_sent_away() -> None:
    async def attack(port: int, listener: Listener) -> None:
        ((reader, writer),) = await strangers(port, 1)
        assert len(await reader.readexactly(32)) == 32
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1)
        writer.transport.abort()
        await listener.has(refused=1)

    listener = beset(Handshakes(SECRET, seconds=0.1), attack)
    assert "did not identify itself" in str(listener.refused[0])


def test_garbage_and_giant_lengths() -> None:
    async def attack(port: int, listener: Listener) -> None:
        for number in range(50):
            ((_, writer),) = await strangers(port, 1)
            writer.write((os.urandom(32), bytes(32), b"\xff" * 32)[number % 3])
            writer.write((os.urandom(200), b"\xff" * 200, bytes(200))[number % 3])
            writer.write_eof()
        await listener.has(refused=50)

    listener = beset(Handshakes(SECRET), attack)
    assert all(isinstance(error, ConnectionError) for error in listener.refused)


@pytest.mark.parametrize(
    ("message", "secret", "why"),
    [
        (HELLO, b"another", "not signed with this job's secret"),
        (Goodbye(finished=True), SECRET, "first message was not hello but goodbye"),
    ],
)
def test_who_is_refused(message: Spec, secret: bytes, why: str) -> None:
    async def attack(port: int, listener: Listener) -> None:
        await call(port, message, secret)
        await listener.has(refused=1)

    listener = beset(Handshakes(SECRET), attack)
    assert isinstance(listener.refused[0], Forged)
    assert why in str(listener.refused[0])
