"""One member's part in the passing from a generation to the next.

The lowest living rank leads: it has all others leave the exchanges of the generation, hears where
they stand, proposes who is in the next one, and begins it when all of these have accepted. If it is
lost meanwhile, the next one leads. What is agreed on is safe whoever leads, and however many at a
time think that they do (`agreement.py`); that there is one leader only makes it quick.
"""

import asyncio
from contextlib import suppress
from typing import Any

from paceline.membership.consensus import Seat
from paceline.membership.control import Control
from paceline.membership.frames import Line
from paceline.membership.heartbeats import Watch
from paceline.membership.hooks import Ended, Hooks
from paceline.membership.interruption import interrupt_until
from paceline.membership.join_queue import Waiting
from paceline.membership.joining import REJOIN_SECONDS, ask_to_join, fall_behind
from paceline.membership.leader import Leading
from paceline.membership.messages import (
    Begin,
    Behind,
    End,
    Gone,
    Join,
    Leave,
    Left,
    Notice,
    Propose,
    Question,
    Reply,
    Retire,
    Vote,
)
from paceline.membership.process_death import is_dead
from paceline.specs import Faults
from paceline.specs.runs.roster import Member, Roster

_LEADERS_ASKED, _NOTICES = 8, 256
"""Who might lead, at a time: all on one side of a cut are gone at once; and by all together, in
half a lease."""


class Succession:
    """Lives in the event loop of a member's control."""

    def __init__(self, me: Member, secret: bytes, faults: Faults, hooks: Hooks) -> None:
        self.me, self.faults, self.hooks = me, faults, hooks
        self.control = Control(
            secret,
            me.name,
            faults.lease_seconds,
            reply=self._reply,
            watched=self._watched,
            generation=lambda: self.begun,
        )
        self.seat = Seat.of_newcomer(me)
        self.gone: Gone = {}
        self.cleared: dict[str, float] = {}
        """When members answered that were said to be gone."""
        self._patience_with_joins = 4 * REJOIN_SECONDS + faults.lease_seconds
        self.waiting = Waiting(self._patience_with_joins)
        self.facts: dict[str, Any] | None = None
        """What this member's training knows, once it has left the generation."""
        self.left = asyncio.Event()
        self.ended = False
        self.ended_at = 0.0
        self.why = ""
        self.finish: End | None = None
        self.next: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self._told = asyncio.Event()
        """That somebody has noticed who is lost, and says so."""
        self._watch: Watch | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str) -> None:
        """Have others reach this member: where, is a part of what it is known by."""
        self.me = self.me.model_copy(update={"port": await self.control.listen(address)})
        self.seat = Seat.of_newcomer(self.me)

    @property
    def roster(self) -> Roster:
        """The last generation that this member knows to have begun."""
        return self.seat.standing.begun

    @property
    def begun(self) -> int:
        """Its number; -1 for who has been in none."""
        return self.roster.generation

    def start(self, roster: Roster) -> None:
        """A generation begins with this member in it."""
        if self.seat.standing.begun != roster:
            self.seat = Seat(roster)
        self.gone, self.waiting = {}, Waiting(self._patience_with_joins)
        self.left.clear()
        self.facts, self.ended, self.why = None, False, ""
        rank = roster.rank(self.me.name)
        assert rank is not None
        self._watch = Watch(
            self.control,
            roster,
            rank,
            self.faults.lease_seconds,
            lost=self._lost,
            ended=lambda why: self.end_generation(why, detected=False),
        )
        if rank == 0:
            self.hooks.announce(roster, self.me)
        self._changed.set()
        self._changed = asyncio.Event()

    def leave(self, facts: dict[str, Any], why: str | None) -> None:
        """This member's training has left the exchanges of its generation, which so ends; or,
        without a reason, it stands by and has no part in them."""
        self.facts = facts
        self.left.set()
        if why is not None:
            self.end_generation(why, detected=True)

    def join(self, facts: dict[str, Any]) -> None:
        """Ask for a place until there is one."""
        self.facts, self.ended = facts, True
        self.left.set()
        self._spawn(ask_to_join(self))

    def end_generation(self, why: str, *, detected: bool) -> None:
        """The generation cannot go on."""
        if self.ended or self.begun < 0:
            return
        self._told.clear()
        self.ended, self.why = True, self.why or why
        self.ended_at = asyncio.get_running_loop().time()
        self._unwatch(finished=False)
        self._spawn(self._interrupt_until_left())
        self._spawn(self._succeed(0.0 if detected else self.faults.lease_seconds / 5))

    async def spread_end(self, message: str) -> None:
        """Tell all members that the training cannot go on."""
        end = End(begun=self.begun, name=self.me.name, message=message)
        others = [each for each in self.roster.members if each.name != self.me.name]
        await self.control.gather(end, others)

    async def close(self) -> None:
        """The training is over for this member."""
        self._unwatch(finished=True)
        for task in self._tasks:
            task.cancel()
        await self.control.close()

    def over(self, end: End) -> None:
        """The training ends for a reason that another member has given."""
        if self.finish is None:
            self.finish = end
            self.ended = True
            self._unwatch(finished=True)
            self._spawn(self._interrupt_until_left())
            if not self.next.done():
                self.next.set_exception(Ended(end, self.me.name))

    def come_anew(self) -> None:
        """Ask for a place under another name, with nothing accepted."""
        name, _, times = self.me.name.partition("+")
        self.me = self.me.model_copy(update={"name": f"{name}+{int(times or 0) + 1}"})
        self.control.name = self.me.name
        self.seat = Seat.of_newcomer(self.me)
        self._spawn(self._interrupt_until_left())
        self._spawn(ask_to_join(self))

    def begin(self, begin: Begin) -> bool:
        """All in a roster have accepted it; whether this member still has."""
        neighbours = self._neighbours()
        if not self.seat.begin(begin.roster):
            return False
        for each in neighbours:
            if each.name in begin.gone:  # one that hangs would keep its device for ever
                is_dead(each, end_it=True)
        self.start(begin.roster)
        if not self.next.done():
            self.next.set_result(begin)
        return True

    def _unwatch(self, *, finished: bool) -> None:
        if self._watch is not None:
            self._watch.close(finished=finished)
            self._watch = None

    def _lost(self, name: str, why: str) -> None:
        self.gone[name] = why
        self.end_generation(f"worker {self.roster.rank(name)} is lost: {why}", detected=True)

    async def _watched(self, name: str, generation: int, line: Line) -> None:
        if generation > self.begun:  # it began a moment before this member does
            await asyncio.wait_for(self._changed.wait(), self.faults.lease_seconds)
        if self._watch is not None and generation == self.begun:
            await self._watch.serve(name, line)

    async def _reply(self, question: Question) -> Reply:
        if isinstance(question, Leave | Notice | End | Retire) and question.begun < self.begun:
            return Behind(generation=self.begun)
        match question:
            case Leave():
                return await self._reply_to_leave(question)
            case Notice():
                await self._heed(question)
            case Propose():
                word = question.words.get(self.me.name, 0)
                return Vote(yes=self.seat.accept(question.roster, word))
            case Begin():
                return Vote(yes=self.begin(question))
            case Join():
                self.waiting.add(question)
            case Retire():
                return Vote(yes=self.waiting.lets_go(question.name))
            case End():
                self.over(question)
        return Vote(yes=True)

    async def _reply_to_leave(self, leave: Leave) -> Reply:
        self.gone = leave.gone | self.gone
        self.end_generation(leave.why, detected=False)
        await self.left.wait()
        return self.standing(leave)

    def standing(self, leave: Leave) -> Left:
        """Where this member stands, for a leader."""
        now = self.seat.standing
        here = [each for each in self._neighbours() if each.name in leave.gone]
        return Left(
            begun=None if now.begun.generation == leave.begun else now.begun,
            accepted=now.accepted,
            word=now.word,
            facts=self.facts or {},
            dead=[
                each.name for each in here if is_dead(each, end_it=each.name in leave.unreachable)
            ],
        )

    def _neighbours(self) -> list[Member]:
        """The other members on this node."""
        members = self.roster.members
        return [each for each in members if each.node == self.me.node and each != self.me]

    async def _heed(self, notice: Notice) -> None:
        """Until another generation has begun, or who asks would think that nobody is here."""
        self.gone = notice.gone | self.gone
        self.gone.pop(self.me.name, None)
        self.end_generation(notice.why, detected=True)
        self._told.set()
        await self.until_changed(0.7 * self._patience_with_leaders())

    async def _succeed(self, delay: float) -> None:
        """Lead, or see to it that somebody does, until another generation has begun."""
        ended = self.begun
        with suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), delay)
        while self.begun == ended and self.finish is None:
            before = self.roster.members[: self.roster.names.index(self.me.name)]
            at_once = max(1, min(_LEADERS_ASKED, _NOTICES // len(self.roster.members)))
            leaders = [each for each in before if each.name not in self.gone][:at_once]
            if not leaders:
                await Leading(self).round()
                continue
            notice = Notice(begun=self.begun, gone=self.gone, why=self.why)
            replies = await self.control.gather(notice, leaders, self._patience_with_leaders)
            if self.begun == ended:
                silent = [each.name for each in leaders if each.name not in replies]
                self.gone |= dict.fromkeys(silent, "it does not answer")
                if any(isinstance(reply, Behind) for reply in replies.values()):
                    await fall_behind(self)

    def _patience_with_leaders(self, _: Member | None = None) -> float:
        return self.faults.lease_seconds / 2 * max(1.0, len(self.roster.members) / _NOTICES)

    async def _interrupt_until_left(self) -> None:
        ended = self.begun
        await interrupt_until(lambda: self.begun != ended or self.left.is_set(), self.hooks)

    async def until_changed(self, seconds: float) -> None:
        """Until a generation has begun with this member in it, or that long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
