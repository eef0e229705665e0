"""One member's participation in the change from one generation to the next.

The lowest living rank leads: it asks the others to leave the generation's collectives, collects
their states, proposes the next roster, and begins it when all its members have accepted. If the
leader is lost, the next rank leads. Consensus is safe with any number of simultaneous leaders
(`consensus.py`); a single leader only makes it fast.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

from paceline.membership.channel import Channel
from paceline.membership.compact.missing import Absence
from paceline.membership.control import Control
from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.hooks import Hooks
from paceline.membership.joining import ask_to_join, rejoin
from paceline.membership.leader import Leader
from paceline.membership.member_state import MemberState
from paceline.membership.messages import (
    Begin,
    End,
    Goodbye,
    Join,
    Leave,
    Notice,
    Outdated,
    Overtaken,
    Proposal,
    Question,
    Reply,
    Retire,
    Vote,
)
from paceline.specs import Faults
from paceline.specs.runs.roster import Member

_LEADERS_ASKED = 4
"""Number of possible leaders, on different nodes, that a member notifies at once; each time that
none answers, four times as many."""
_LED_LEASES = 0.5
_LED_LEASES_IF_SILENT = 1.25
"""How long members wait for a leader after it has asked them, and if members are silent, for each
of which it may have to wait a lease. Who notified it meanwhile would take it for lost, and lead."""
_ALL_LED_LEASES = 3
"""How long members wait at most for the leaders that ask them."""
_NOTICED_LEASES = 0.35
"""How long a possible leader waits for the next generation before it answers a notice."""
_NOTIFIERS = 64
"""Number of members that notify possible leaders at once. Of more members, chance selects so many,
anew after each pause: a collective fails on all of them at the same time, and a leader with 1,000
connections is slow. Not more of them with time, since a slow leader would only become slower."""


class Participant:
    """Answers other members' questions and ensures that some member leads."""

    def __init__(self, me: Member, secret: bytes, faults: Faults, hooks: Hooks) -> None:
        control = Control(
            secret,
            me.name,
            faults.lease_seconds,
            reply=self._reply,
            watched=self._watched,
            generation=lambda: self.state.generation,
            is_suspect=self._is_suspect,
            patience_seconds=self._patience_seconds,
            reached=self._reached,
            answered=self._answered,
        )
        self.state = MemberState(me, control, LastVotes(secret), faults, hooks, self._regroup)

        self._silent_nodes: set[str] = set()
        """Nodes whose possible leaders did not answer this member's notices."""

    async def listen(self, address: str) -> None:
        """Start listening; the port becomes part of this member's identity."""
        port = await self.state.control.listen(address)
        self.state.rename(self.state.me.model_copy(update={"port": port}))

    def join(self, facts: dict[str, Any]) -> None:
        """Ask for a place until this member has one."""
        self.state.ended = True
        self.state.leave(facts, None)
        self.state.spawn(ask_to_join(self.state))

    async def fail(self, message: str) -> None:
        """Tell all members that the training must end."""
        state = self.state
        end = End(begun=state.generation, name=state.me.name, message=message)
        roster = state.control.book.add(state.roster)
        await state.control.gather(end, state.others, roster=roster)

    async def may_retire(self) -> bool:
        """Ask the leader whether a waiting process can replace this member."""
        state = self.state
        leader = state.roster.members[0]
        if leader.name == state.me.name:
            return state.join_queue.may_retire(state.me.name)
        question = Retire(begun=state.generation, name=state.me.name)
        reply = (await state.control.gather(question, [leader])).get(leader.name)
        return isinstance(reply, Vote) and reply.yes

    async def _watched(self, name: str, generation: int, channel: Channel) -> None:
        state = self.state
        if generation > state.generation:  # the caller began it a moment earlier
            await state.until_changed(state.faults.lease_seconds)
        if state.heartbeats is not None and generation == state.generation:
            await state.heartbeats.watch(name, channel)
            return
        # The caller would take a member that closes without a goodbye for dead.
        channel.send(Goodbye(finished=state.end is not None))
        channel.finish()
        async with asyncio.timeout(state.faults.lease_seconds):
            while True:
                await channel.receive()

    def _is_suspect(self, member: Member) -> bool:
        return self.state.silences.is_suspect(member)

    def _patience_seconds(self, member: Member, since: float) -> float:
        return self.state.silences.patience_seconds(member, since)

    def _reached(self, member: Member) -> None:
        self.state.silences.note_reached(member)

    def _answered(self, name: str, reply: Reply) -> None:
        self.state.note_reply(name, reply)

    async def _reply(self, question: Question) -> Reply:
        try:
            return await self._reply_to(question)
        except Exception as error:
            self.state.fail(error)
            raise

    async def _reply_to(self, question: Question) -> Reply:
        state = self.state
        yes = True
        match question:
            case Leave():
                return await self._reply_to_leave(question)
            case Notice():
                return await self._reply_to_notice(question)
            case End() | Retire() if question.begun < state.generation:
                return Outdated(generation=state.generation, included=False)
            case Proposal():
                roster = state.control.book.roster(question.change.digest)
                version = question.versions.get(state.me.name, question.version)
                yes = roster is not None and state.accept(roster, version, question.asker)
            case Begin():
                yes = state.begin(question)
            case Join():
                state.join_queue.add(question)
            case Overtaken(begun=begun, newer=newer) if begun == state.generation:
                state.spawn(rejoin(state, [Outdated(generation=newer, included=False)]))
            case Retire():
                yes = state.join_queue.may_retire(question.name)
            case End():
                state.end_training(question)
        return Vote(yes=yes)

    def _outdated(self, question: Leave | Notice) -> Outdated | None:
        """Return whether the asker's generation is over, but this member's is not.

        A member of this generation that has accepted a later one will never follow it, and this
        generation cannot make progress without that member.
        """
        state = self.state
        if question.begun >= state.generation:
            return None
        included = state.roster.rank(question.asker) is not None
        if included and (state.ended or question.accepted > state.generation):
            return None
        return Outdated(
            generation=state.generation,
            included=included,
            excluded=state.control.book.without(question.missing.roster, state.roster),
        )

    async def _reply_to_leave(self, leave: Leave) -> Reply:
        """End the generation and report this member's state once it has left the collectives."""
        state = self.state
        await state.until_begun(leave.asker)
        while (outdated := self._outdated(leave)) is None:
            state.note_missing(leave.missing)
            state.end_generation(leave.why, detected=False)
            state.led_at = asyncio.get_running_loop().time()
            ended = state.generation
            await state.left.wait()
            if state.generation == ended:
                return state.report(leave)
        return outdated

    async def _reply_to_notice(self, notice: Notice) -> Reply:
        """End the generation and wait for the next one, but return before the caller gives up."""
        state = self.state
        outdated = self._outdated(notice)
        if outdated is None:
            state.note_missing(notice.missing)
            state.end_generation(notice.why, detected=True)
            state.noticed.set()
            await state.until_changed(_NOTICED_LEASES * state.faults.lease_seconds)
            outdated = self._outdated(notice)
        return outdated or Vote(yes=True)

    async def _regroup(self, delay: float) -> None:
        """Lead, or notify the possible leaders, until another generation has begun."""
        state = self.state
        ended = state.generation
        await self._pause(delay)
        at_once = _LEADERS_ASKED
        self._silent_nodes = set()
        while state.generation == ended and state.end is None:
            if self._is_led():
                await self._pause(state.faults.lease_seconds / 8)
                continue
            leaders = self._possible_leaders(at_once)
            if not leaders:
                await Leader(state).lead()
                continue
            if not self._notifies():
                await self._pause(state.faults.lease_seconds / 5)
                continue
            replies = await self._notify(leaders)
            if replies:
                at_once = _LEADERS_ASKED
            else:  # where a network partition has taken many nodes away, nobody receives notices
                at_once *= _LEADERS_ASKED
            if state.generation == ended and any(
                isinstance(reply, Outdated) for reply in replies.values()
            ):
                await rejoin(state, replies.values())

    def _is_led(self) -> bool:
        """Return whether to wait for a leader that asks: more leaders would only slow it down.

        Not for long: it may have been lost, or reach too few members.
        """
        state, now = self.state, asyncio.get_running_loop().time()
        lease = state.faults.lease_seconds
        leases = _LED_LEASES_IF_SILENT if state.silences.report() else _LED_LEASES
        return (
            now - state.led_at < leases * lease and now - state.ended_at < _ALL_LED_LEASES * lease
        )

    def _possible_leaders(self, count: int) -> list[Member]:
        """Return members that should lead rather than this one: the first of each living node."""
        state = self.state
        before = state.roster.members[: state.roster.names.index(state.me.name)]
        silent = {each.node for each in state.roster.members if each.name in state.quiet}
        silent = {node for node in silent | self._silent_nodes if not state.silences.lives(node)}
        found: dict[str, Member] = {}
        for each in before:
            if each.name not in state.lost and each.node not in silent:
                found.setdefault(each.node, each)
        return list(found.values())[:count]

    async def _notify(self, leaders: list[Member]) -> dict[str, Reply]:
        """Notify possible leaders, and note which of them do not answer."""
        state = self.state
        ended, asked_at = state.generation, asyncio.get_running_loop().time()
        notice = Notice(
            asker=state.me.name,
            begun=ended,
            accepted=state.accepted_generation,
            missing=state.missing(),
            why=state.why,
        )
        timeout_seconds = state.faults.lease_seconds / 2
        replies = await state.control.gather(notice, leaders, timeout_seconds)
        waited_seconds = asyncio.get_running_loop().time() - asked_at
        if state.generation == ended:
            absent = [each for each in leaders if each.name not in replies]
            # Not "silent": that is for those who had a whole lease.
            unreachable = Absence(reason="unreachable")
            state.lost |= dict.fromkeys((each.name for each in absent), unreachable)
            # A process that is gone refuses connections at once: its node lives.
            if waited_seconds >= timeout_seconds:
                self._silent_nodes |= {each.node for each in absent}
                names = (each.name for each in absent)
                state.silences.note_unanswered(state.roster, names, waited_seconds)
        return replies

    def _notifies(self) -> bool:
        state = self.state
        chance = _NOTIFIERS / len(state.roster.members)
        return state.found_loss or random.random() < chance  # noqa: S311 -- no secret

    async def _pause(self, seconds: float) -> None:
        """Wait until a notice arrives, for at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.state.noticed.wait(), seconds)
        self.state.noticed.clear()
