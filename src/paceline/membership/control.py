"""The control plane: one listener per member, and questions that spread over a tree.

A question to many members goes to a few of them. Each forwards it to its part of the rest and
returns all their replies together: with 10,000 members, no member talks to more than a few. Members
are named by their ranks in a roster that both ends know, and equal replies are sent once. A
member sends heartbeats while it works on a question. A member that is dead, or silent for a lease,
has no reply in the answer, and the members behind it are asked directly.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from paceline.comm.signing import Forged
from paceline.membership.channel import Channel, KeptChannels
from paceline.membership.compact.answers import grouped, ungrouped
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.handshakes import Handshakes
from paceline.membership.messages import (
    Answer,
    Ask,
    Heartbeat,
    Hello,
    Message,
    Question,
    Reply,
    UnknownRoster,
)
from paceline.membership.patience import patiently
from paceline.specs.runs.roster import Member

FAN_OUT = 32
HEARTBEATS_PER_LEASE = 6
_FIRST_HEARTBEAT_DIVISOR = 24
"""The first heartbeat during a question comes after a lease divided by this. Most answers are
faster; the leader waits at least three times as long."""
_OPENINGS_PER_LEASE = 4
_REOPEN_SECONDS = 0.02
_MAX_STRANGERS = 256
"""Enough for a burst of notices to a possible leader, and for its part of a tree."""

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
        is_suspect: Callable[[Member], bool],
        patience_seconds: Callable[[Member, float], float],
        reached: Callable[[Member], None],
        answered: Callable[[str, Reply], None],
    ) -> None:
        self._secret, self.name, self._lease = secret, name, lease_seconds
        self._reply, self._watched, self._generation = reply, watched, generation
        self._patience_seconds, self._answered = patience_seconds, answered
        self._is_suspect, self._reached = is_suspect, reached
        self.book = RosterBook()
        self._server: asyncio.Server | None = None
        self._handshakes = Handshakes(secret, most=_MAX_STRANGERS)
        self._kept = KeptChannels(lease_seconds)
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
        self._kept.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def connect(self, member: Member, purpose: str, timeout_seconds: float) -> Channel:
        """Open a channel to a member."""
        return await patiently(self._connect(member, purpose), timeout_seconds)

    async def _connect(self, member: Member, purpose: str) -> Channel:
        reader, writer = await self._opened(member)
        try:
            channel = await Channel.open(reader, writer, self._secret, initiator=True)
            hello = {"name": self.name, "generation": self._generation(), "purpose": purpose}
            channel.send(Hello.model_validate(hello))
        except BaseException:
            writer.close()
            raise
        return channel

    async def _opened(self, member: Member) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; try again before the kernel does, 1 s after a lost packet."""
        seconds = self._lease / _OPENINGS_PER_LEASE
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    opened = await asyncio.open_connection(member.address, member.port)
                    self._reached(member)
                    return opened

    async def gather(
        self,
        question: Question,
        members: Sequence[Member],
        timeout_seconds: float | None = None,
        *,
        roster: str = "",
    ) -> dict[str, Reply]:
        """Ask members a question; return the replies by name, without unreachable members.

        `timeout_seconds`: how long a member may take at most for its first sign of life; by default
        a lease, less for members on nodes that have been silent already.
        `roster`: the digest of a roster in the book that most of them know.
        """
        if not members:
            return {}
        # Nobody waits for a suspect before the members behind it.
        parts: list[Sequence[Member]] = [[each] for each in members if self._is_suspect(each)]
        others = [each for each in members if not self._is_suspect(each)]
        size = -(-len(others) // FAN_OUT) or 1
        parts += [others[begin : begin + size] for begin in range(0, len(others), size)]
        with self.book.keeping(roster):
            found = await asyncio.gather(
                *(self._ask_branch(question, part, timeout_seconds, roster) for part in parts)
            )
        return {name: reply for replies in found for name, reply in replies.items()}

    async def _ask_branch(
        self,
        question: Question,
        members: Sequence[Member],
        timeout_seconds: float | None,
        roster: str,
    ) -> dict[str, Reply]:
        first, *rest = members
        ask = Ask(question=question, rest=self.book.select(rest, roster))
        try:
            answer = await self._ask(first, ask, timeout_seconds)
        except UNREACHED:
            return await self.gather(question, rest, timeout_seconds, roster=roster)
        replies = ungrouped(answer, self.book, roster, {each.name for each in members})
        for name, reply in replies.items():
            self._answered(name, reply)
        return replies

    async def _ask(self, member: Member, ask: Ask, timeout_seconds: float | None) -> Answer:
        since = asyncio.get_running_loop().time()
        most = self._lease if timeout_seconds is None else timeout_seconds

        def seconds() -> float:
            return min(most, self._patience_seconds(member, since))

        channel, message = await patiently(self._first_message(member, ask), seconds)
        keep = False
        try:
            while isinstance(message, Heartbeat | UnknownRoster):
                if isinstance(message, UnknownRoster):
                    channel.send(self.book.in_full(ask))
                message = await patiently(channel.receive(), self._lease)
            if not isinstance(message, Answer):
                raise Forged(f"received {message.kind} instead of an answer")
            keep = True
            return message
        finally:
            if keep:
                self._kept.add(member.name, channel)
            else:
                channel.close()

    async def _first_message(self, member: Member, ask: Ask) -> tuple[Channel, Message]:
        """Send a question; return the channel and the first message on it.

        A listener that receives too many connections at once closes the oldest ones before it reads
        their questions, and a member closes one that was idle for long. These are opened again; the
        listener of a dead process refuses that.
        """
        longest_pause = _REOPEN_SECONDS
        while True:
            # A kept connection says nothing about a member that was silent, and may be broken.
            kept = None if self._is_suspect(member) else self._kept.pop(member.name)
            with suppress(ConnectionResetError, BrokenPipeError):
                channel = kept or await self._connect(member, "ask")
                try:
                    channel.send(ask)
                    return channel, await channel.receive()
                except BaseException:
                    channel.close()
                    raise
            if kept is None:
                await asyncio.sleep(random.uniform(0, longest_pause))  # noqa: S311 -- no secret
                longest_pause *= 2

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
        while True:
            await self._answer_next(channel)

    async def _answer_next(self, channel: Channel) -> None:
        ask = await self._received_question(channel)
        if not self.book.learn(ask):
            channel.send(UnknownRoster())
            ask = await self._received_question(channel)
        rest = self.book.selected(ask.rest) if self.book.learn(ask) else None
        if rest is None:
            raise Forged("received a question about a roster that does not match its digest")
        await self._answer(channel, ask, rest)

    async def _received_question(self, channel: Channel) -> Ask:
        ask = await patiently(channel.receive(), 2 * self._lease)  # longer than a channel is kept
        if not isinstance(ask, Ask):
            raise Forged(f"received {ask.kind} instead of a question")
        return ask

    async def _answer(self, channel: Channel, ask: Ask, rest: Sequence[Member]) -> None:
        answering = asyncio.create_task(self._collect(ask, rest))
        pause = self._lease / _FIRST_HEARTBEAT_DIVISOR
        try:
            while not (await asyncio.wait({answering}, timeout=pause))[0]:
                channel.send(Heartbeat())
                pause = self._lease / HEARTBEATS_PER_LEASE
            channel.send_after_heartbeat(answering.result())
            await channel.drain()
        finally:
            answering.cancel()

    async def _collect(self, ask: Ask, rest: Sequence[Member]) -> Answer:
        """Return this member's own reply together with those of its subtree."""
        roster = ask.rest.roster
        own, others = await asyncio.gather(
            self._reply(ask.question), self.gather(ask.question, rest, roster=roster)
        )
        return grouped({**others, self.name: own}, self.book, roster)
