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
from paceline.membership.control import Control
from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.hooks import Hooks
from paceline.membership.joining import ask_to_join, rejoin
from paceline.membership.leader import Leader
from paceline.membership.member_state import MemberState
from paceline.membership.messages import (
    Absence,
    Begin,
    End,
    Join,
    Leave,
    Left,
    Notice,
    Outdated,
    Proposal,
    Question,
    Reply,
    Retire,
    Vote,
)
from paceline.specs import Faults
from paceline.specs.runs.roster import Member

_LEADERS_ASKED, _NOTICES = 8, 256
"""Number of possible leaders that a member notifies at once, since a network partition takes away
many at a time; and notices that all members together send to one member in half a lease."""
_NOTIFIERS = 64
"""Number of members that notify possible leaders at once. Of more members, chance selects so many,
and twice as many after each pause: a collective fails on all of them at the same time, and a leader
with 1,000 connections is slow."""


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
        )
        self.state = MemberState(me, control, LastVotes(secret), faults, hooks, self._regroup)

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

    async def _reply(self, question: Question) -> Reply:
        state = self.state
        if (
            isinstance(question, Leave | Notice | End | Retire)
            and question.begun < state.generation
        ):
            return Outdated(generation=state.generation)
        match question:
            case Leave():
                return await self._reply_to_leave(question)
            case Notice():
                await self._reply_to_notice(question)
            case Proposal():
                roster = state.control.book.roster(question.change.digest)
                version = question.versions.get(state.me.name, question.version)
                return Vote(yes=roster is not None and state.accept(roster, version))
            case Begin():
                return Vote(yes=state.begin(question))
            case Join():
                state.join_queue.add(question)
            case Retire():
                return Vote(yes=state.join_queue.may_retire(question.name))
            case End():
                state.end_training(question)
        return Vote(yes=True)

    async def _reply_to_leave(self, leave: Leave) -> Left:
        state = self.state
        state.lost = leave.lost | state.lost
        state.end_generation(leave.why, detected=False)
        await state.left.wait()
        return state.report(leave)

    async def _reply_to_notice(self, notice: Notice) -> None:
        """End the generation and wait for the next one, but return before the caller gives up."""
        state = self.state
        state.lost = notice.lost | state.lost
        state.lost.pop(state.me.name, None)
        state.end_generation(notice.why, detected=True)
        state.noticed.set()
        await state.until_changed(0.7 * self._leader_timeout())

    async def _regroup(self, delay: float) -> None:
        """Lead, or notify the possible leaders, until another generation has begun."""
        state = self.state
        ended = state.generation
        await self._pause(delay)
        pauses = 0
        while state.generation == ended and state.end is None:
            before = state.roster.members[: state.roster.names.index(state.me.name)]
            at_once = max(1, min(_LEADERS_ASKED, _NOTICES // len(state.roster.members)))
            leaders = [each for each in before if each.name not in state.lost][:at_once]
            if not leaders:
                await Leader(state).lead()
                continue
            if not self._notifies(pauses):
                await self._pause(state.faults.lease_seconds / 5)
                pauses += 1
                continue
            notice = Notice(begun=state.generation, lost=state.lost, why=state.why)
            replies = await state.control.gather(notice, leaders, self._leader_timeout())
            if state.generation == ended:
                silent = [each.name for each in leaders if each.name not in replies]
                # Not "silent": that is for those who had a whole lease.
                state.lost |= dict.fromkeys(silent, Absence(reason="unreachable"))
                if any(isinstance(reply, Outdated) for reply in replies.values()):
                    await rejoin(state, replies.values())

    def _notifies(self, pauses: int) -> bool:
        state = self.state
        chance = 2**pauses * _NOTIFIERS / len(state.roster.members)
        return state.found_loss or random.random() < chance  # noqa: S311 -- no secret

    async def _pause(self, seconds: float) -> None:
        """Wait until a notice arrives, for at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.state.noticed.wait(), seconds)
        self.state.noticed.clear()

    def _leader_timeout(self) -> float:
        state = self.state
        return state.faults.lease_seconds / 2 * max(1.0, len(state.roster.members) / _NOTICES)
