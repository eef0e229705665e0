"""The control plane: one listener per member, and questions that spread over a tree.

A question to many members goes to a few of them. Each forwards it to its part of the rest and
returns all their replies together: with 10,000 members, no member talks to more than a few. A
member sends heartbeats while it works on a question. A member that is dead, or silent for a lease,
has no reply in the answer, and the members behind it are asked directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from paceline.comm.signing import Forged
from paceline.membership.channel import Channel
from paceline.membership.handshakes import Handshakes
from paceline.membership.messages import Answer, Ask, Heartbeat, Hello, Question, Reply
from paceline.specs.runs.roster import Member

FAN_OUT = 32
HEARTBEATS_PER_LEASE = 6

UNREACHED = (ConnectionError, TimeoutError, OSError)


class Control:
    """One member's listener and its questions to others, all in one event loop."""

    def __init__(
        self,
        secret: bytes,
        name: str,
        lease_seconds: float,
        *,
        reply: Callable[[Question], Awaitable[Reply]],
        watched: Callable[[str, int, Channel], Awaitable[None]],
        generation: Callable[[], int],
    ) -> None:
        self._secret, self.name, self._lease = secret, name, lease_seconds
        self._reply, self._watched, self._generation = reply, watched, generation
        self._server: asyncio.Server | None = None
        self._handshakes = Handshakes(secret)
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, address: str) -> int:
        """Start listening and return the port."""
        self._server = await asyncio.start_server(self._accept, address, 0, backlog=4096)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def connect(self, member: Member, purpose: str, timeout_seconds: float) -> Channel:
        """Open a channel to a member."""
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(member.address, member.port)
            try:
                channel = await Channel.open(reader, writer, self._secret, initiator=True)
                hello = {"name": self.name, "generation": self._generation(), "purpose": purpose}
                channel.send(Hello.model_validate(hello))
            except BaseException:
                writer.close()
                raise
        return channel

    async def gather(
        self,
        question: Question,
        members: Sequence[Member],
        timeout_seconds: Callable[[Member], float] | None = None,
    ) -> dict[str, Reply]:
        """Ask members a question; return the replies by name, without unreachable members."""
        if not members:
            return {}
        each = -(-len(members) // FAN_OUT)
        parts = [members[begin : begin + each] for begin in range(0, len(members), each)]
        found = await asyncio.gather(
            *(self._ask_branch(question, part, timeout_seconds) for part in parts)
        )
        return {name: reply for replies in found for name, reply in replies.items()}

    async def _ask_branch(
        self,
        question: Question,
        members: Sequence[Member],
        timeout_seconds: Callable[[Member], float] | None,
    ) -> dict[str, Reply]:
        first, *rest = members
        limit = self._lease if timeout_seconds is None else timeout_seconds(first)
        try:
            return await self._ask(first, Ask(question=question, rest=tuple(rest)), limit)
        except UNREACHED:
            return await self.gather(question, rest, timeout_seconds)

    async def _ask(self, member: Member, ask: Ask, timeout_seconds: float) -> dict[str, Reply]:
        channel = await self.connect(member, "ask", timeout_seconds)
        try:
            channel.send(ask)
            while True:
                async with asyncio.timeout(timeout_seconds):
                    message = await channel.receive()
                timeout_seconds = self._lease
                if isinstance(message, Answer):
                    return message.replies
                if not isinstance(message, Heartbeat):
                    raise Forged(f"received {message.kind} instead of an answer")
        finally:
            channel.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine function: asyncio.start_server would then create the task itself, and log
        # an error for each task that `close` cancels (Python 3.11).
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(*UNREACHED):
                await self._handle(reader, writer)
        finally:
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel, hello = await self._handshakes.accept(reader, writer)
        if hello.purpose == "watch":
            await self._watched(hello.name, hello.generation, channel)
            return
        async with asyncio.timeout(self._lease):
            ask = await channel.receive()
        if not isinstance(ask, Ask):
            raise Forged(f"received {ask.kind} instead of a question")
        await self._answer(channel, ask)

    async def _answer(self, channel: Channel, ask: Ask) -> None:
        beating = asyncio.create_task(self._send_heartbeats(channel))
        try:
            own, others = await asyncio.gather(
                self._reply(ask.question), self.gather(ask.question, ask.rest)
            )
            channel.send(Answer(replies={self.name: own, **others}))
            await channel.drain()
        finally:
            beating.cancel()

    async def _send_heartbeats(self, channel: Channel) -> None:
        while True:
            channel.send(Heartbeat())
            await asyncio.sleep(self._lease / HEARTBEATS_PER_LEASE)
