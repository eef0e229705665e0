"""How members reach each other: one listener each, and questions that spread over a tree.

A question to many goes to a few of them, each with its part of the rest, and their replies come
back together: with 10,000 members nobody talks to more than a few. Whoever works on a question
beats meanwhile; who is silent for a lease, or gone, has no reply in the answer, and those behind it
are asked by others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from paceline.comm.signing import Forged
from paceline.membership.frames import Line
from paceline.membership.handshake import Door
from paceline.membership.messages import Answer, Ask, Beat, Hello, Question, Reply
from paceline.specs.runs.roster import Member

FAN_OUT = 32
BEATS_PER_LEASE = 6

UNREACHED = (ConnectionError, TimeoutError, OSError)


class Control:
    """One member's listener, and its questions to others. All of it is in one event loop."""

    def __init__(
        self,
        secret: bytes,
        name: str,
        lease_seconds: float,
        *,
        reply: Callable[[Question], Awaitable[Reply]],
        watched: Callable[[str, int, Line], Awaitable[None]],
        generation: Callable[[], int],
    ) -> None:
        self._secret, self.name, self._lease = secret, name, lease_seconds
        self._reply, self._watched, self._generation = reply, watched, generation
        self._server: asyncio.Server | None = None
        self._door = Door(secret)
        self._serving: set[asyncio.Task[None]] = set()

    async def listen(self, address: str) -> int:
        """Begin to listen; the port."""
        self._server = await asyncio.start_server(self._serve, address, 0, backlog=4096)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def line(self, member: Member, purpose: str, patience: float) -> Line:
        """A new connection to a member."""
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(member.address, member.port)
            try:
                line = await Line.opened(reader, writer, self._secret, called=True)
                hello = {"name": self.name, "generation": self._generation(), "purpose": purpose}
                line.say(Hello.model_validate(hello))
            except BaseException:
                writer.close()
                raise
        return line

    async def gather(
        self,
        question: Question,
        members: Sequence[Member],
        patience: Callable[[Member], float] | None = None,
    ) -> dict[str, Reply]:
        """The replies of members, by name, to a question that spreads over them."""
        if not members:
            return {}
        each = -(-len(members) // FAN_OUT)
        parts = [members[begin : begin + each] for begin in range(0, len(members), each)]
        found = await asyncio.gather(*(self._ask(question, part, patience) for part in parts))
        return {name: reply for replies in found for name, reply in replies.items()}

    async def _ask(
        self,
        question: Question,
        members: Sequence[Member],
        patience: Callable[[Member], float] | None,
    ) -> dict[str, Reply]:
        first, *rest = members
        try:
            return await self._asked(
                first, Ask(question=question, rest=tuple(rest)), patience and patience(first)
            )
        except UNREACHED:
            return await self.gather(question, rest, patience)

    async def _asked(
        self, member: Member, ask: Ask, patience: float | None = None
    ) -> dict[str, Reply]:
        patience = patience or self._lease
        line = await self.line(member, "ask", patience)
        try:
            line.say(ask)
            while True:
                async with asyncio.timeout(patience):
                    message = await line.hear()
                patience = self._lease
                if isinstance(message, Answer):
                    return message.replies
                if not isinstance(message, Beat):
                    raise Forged(f"a {message.kind} came in place of an answer")
        finally:
            line.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(*UNREACHED):
                await self._welcome(reader, writer)
        finally:
            self._serving.discard(task)
            writer.close()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, hello = await self._door.let_in(reader, writer)
        if hello.purpose == "watch":
            await self._watched(hello.name, hello.generation, line)
            return
        async with asyncio.timeout(self._lease):
            ask = await line.hear()
        if not isinstance(ask, Ask):
            raise Forged(f"a {ask.kind} came in place of a question")
        await self._answer(line, ask)

    async def _answer(self, line: Line, ask: Ask) -> None:
        beating = asyncio.create_task(self._beat(line))
        try:
            own, others = await asyncio.gather(
                self._reply(ask.question), self.gather(ask.question, ask.rest)
            )
            line.say(Answer(replies={self.name: own, **others}))
            await line.drain()
        finally:
            beating.cancel()

    async def _beat(self, line: Line) -> None:
        while True:
            line.say(Beat())
            await asyncio.sleep(self._lease / BEATS_PER_LEASE)
