"""A member's state across generations, shared by its roles: participant, leader, newcomer."""

import asyncio
import math
import sys
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from paceline.membership.compact.missing import Absence, Absences, Missing, Quiet, Silence
from paceline.membership.consensus import Acceptor
from paceline.membership.control import Control
from paceline.membership.deaths.clearances import Clearances
from paceline.membership.deaths.last_votes import LastVotes
from paceline.membership.deaths.neighbors import kill_lost, votes_of_dead
from paceline.membership.deaths.silences import Silences
from paceline.membership.heartbeats import Heartbeats
from paceline.membership.hooks import Begun, Ended, Hooks
from paceline.membership.interruption import interrupt_until
from paceline.membership.join_queue import JoinQueue
from paceline.membership.messages import Begin, End, Leave, Left, Reply
from paceline.specs import Faults
from paceline.specs.runs.roster import Member, Roster

_BEGUN_LEASES = 0.25
"""How long a member that has accepted a roster makes other leaders wait: they would undo it."""
JOIN_SECONDS = 0.5
"""Interval at which a waiting process asks for a place."""


class MemberState:
    """One member's state and its transitions, all in the event loop of its control plane.

    `regroup(delay)` runs when a generation has ended, and forms the next one.
    """

    def __init__(
        self,
        me: Member,
        control: Control,
        votes: LastVotes,
        faults: Faults,
        hooks: Hooks,
        regroup: Callable[[float], Coroutine[Any, Any, None]],
    ) -> None:
        self.me, self.control, self.faults, self.hooks = me, control, faults, hooks
        self._votes = votes
        self._regroup = regroup
        self.acceptor = Acceptor.of_newcomer(me)
        self._proposer, self._accepted_at = "", -math.inf
        """Whose roster this member accepted last, and when."""
        self.lost: Absences = {}
        self.silences = self._no_silences()
        self.quiet: Quiet = {}
        """Members whose heartbeats this one had missed when it stopped."""
        self.cleared = Clearances(asyncio.get_running_loop().time)
        self._join_expiry = 4 * JOIN_SECONDS + faults.lease_seconds
        self.join_queue = JoinQueue(self._join_expiry)
        self.facts: dict[str, Any] | None = None
        """Facts about this member's training, once it has left the generation."""
        self.left = asyncio.Event()
        """Set while the training is outside all collectives."""
        self.ended = False
        self.ended_at = 0.0
        self.led_at = -math.inf
        """When a leader asked this member last."""
        self.why = ""
        self.end: End | None = None
        """Why the whole training has ended."""
        self.next: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self.noticed = asyncio.Event()
        """Set when another member reports the end of the generation."""
        self.found_loss = False
        """Whether this member's heartbeats ended the generation: few others can know why."""
        self.heartbeats: Heartbeats | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def roster(self) -> Roster:
        """The last roster that this member knows to have begun."""
        return self.acceptor.state.begun

    @property
    def generation(self) -> int:
        """This member's generation; -1 for a process that has been in none."""
        return self.roster.generation

    @property
    def accepted_generation(self) -> int:
        """The latest generation that this member has accepted."""
        return self.acceptor.state.generation

    @property
    def others(self) -> list[Member]:
        """The other members of the generation."""
        return [each for each in self.roster.members if each.name != self.me.name]

    def rename(self, me: Member) -> None:
        """Become another member, which has accepted nothing."""
        before, state = self.me, self.acceptor.state
        self.me, self.control.name = me, me.name
        self.acceptor = Acceptor.of_newcomer(me)
        if state.begun.generation >= 0:  # its neighbors must not kill it under its old name
            self._votes.record(me, self.acceptor.state)
            self._votes.record(before, state, closed=True)

    def start(self, roster: Roster) -> None:
        """Start a generation with this member in it."""
        if self.roster != roster:
            self.acceptor = Acceptor(roster)
            self._votes.record(self.me, self.acceptor.state)
        self.control.book.add(roster)
        self.lost, self.join_queue = {}, JoinQueue(self._join_expiry)
        self.left.clear()
        self.facts, self.ended, self.why, self.found_loss = None, False, "", False
        rank = roster.rank(self.me.name)
        assert rank is not None
        self.heartbeats = Heartbeats(
            self.control,
            roster,
            rank,
            self.faults.lease_seconds,
            lost=self._lose,
            ended=lambda why: self.end_generation(why, detected=False),
        )
        if rank == 0:
            self.hooks.announce(roster, self.me)
        self._changed.set()
        self._changed = asyncio.Event()

    def accept(self, roster: Roster, version: int, proposer: str) -> bool:
        """Accept a roster, and record this vote for the case that this process dies.

        Refuse one without this member: it was meant for its earlier name, or for a process that
        has had its port.
        """
        if roster.rank(self.me.name) is None or not self.acceptor.accept(roster, version):
            return False
        self._proposer, self._accepted_at = proposer, asyncio.get_running_loop().time()
        return self._votes.record(self.me, self.acceptor.state)

    def note_refused(self) -> None:
        """Note that the roster that this member proposed will not begin: nobody waits for that.

        Two leaders that both waited would ask again at the same moment, and refuse each other.
        """
        if self._proposer == self.me.name:
            self._accepted_at = -math.inf

    async def until_begun(self, asker: str) -> None:
        """Give a roster that this member has just accepted from another leader time to begin."""
        if self.acceptor.state.accepted is not None and asker != self._proposer:
            ends_at = self._accepted_at + _BEGUN_LEASES * self.faults.lease_seconds
            await self.until_changed(max(0.0, ends_at - asyncio.get_running_loop().time()))

    def begin(self, begin: Begin) -> bool:
        """Begin an accepted generation; return False if this member has accepted another since."""
        neighbors = self._neighbors()
        roster = self.control.book.roster(begin.roster)
        if roster is None or not self.acceptor.begin(roster):
            return False
        self._votes.record(self.me, self.acceptor.state)
        lost = self.control.book.lost(begin.missing)
        # A hung process would occupy its device forever.
        kill_lost((each for each in neighbors if each.name in lost), self._votes)
        self.start(roster)
        self._votes.forget_before(roster.generation)
        if not self.next.done():
            self.next.set_result(Begun(roster, begin, lost))
        return True

    def note_reply(self, name: str, reply: Reply) -> None:
        """Note what a member's reply says about living and silent members."""
        rank = self.roster.rank(name)
        if rank is not None:
            self.silences.note_life(self.roster.members[rank])
        if isinstance(reply, Left):
            self.silences.note(self.roster, reply.quiet)

    def missing(self, unresponsive: Collection[str] = ()) -> Missing:
        """Return what this member knows about members that do not answer."""
        book = self.control.book
        return book.missing(book.add(self.roster), self.lost, self.silences.report(), unresponsive)

    def note_missing(self, missing: Missing) -> None:
        """Note what another member knows about members that do not answer."""
        book = self.control.book
        self.lost = book.lost(missing) | self.lost
        self.lost.pop(self.me.name, None)
        self.silences.note(self.roster, book.quiet(missing))

    def leave(self, facts: dict[str, Any], why: str | None) -> None:
        """Record that the training has left its collectives; with `why`, end the generation."""
        self.facts = facts
        self.left.set()
        if why is not None:
            self.end_generation(why, detected=True)

    def end_generation(self, why: str, *, detected: bool) -> None:
        """End the generation; `detected` tells whether this member noticed the reason itself."""
        if self.ended or self.generation < 0:
            return
        self.noticed.clear()
        self.ended, self.why, self.led_at = True, self.why or why, -math.inf
        self.ended_at = asyncio.get_running_loop().time()
        self.stop_heartbeats(finished=False)
        self.interrupt()
        self.spawn(self._regroup(0.0 if detected else self.faults.lease_seconds / 5))

    def end_training(self, end: End) -> None:
        """End the training for this member."""
        if self.end is None:
            self.end = end
            self.ended = True
            self.stop_heartbeats(finished=True)
            self.interrupt()
            if not self.next.done():
                self.next.set_exception(Ended(end, self.me.name))

    def give_up(self, message: str) -> None:
        """End the training for this member because too few are left; it may be resumed."""
        self.end_training(
            End(begun=self.generation, name=self.me.name, message=message, too_few=True)
        )

    def fail(self, error: BaseException) -> None:
        """End the training for this member, whose control plane has failed."""
        traceback.print_exception(error, file=sys.stderr)
        if self.end is not None and not self.left.is_set():
            self.hooks.kill_process()  # the training may wait in a collective for ever
        message = f"the control plane of worker {self.roster.rank(self.me.name)} failed: {error!r}"
        self.end_training(End(begun=self.generation, name=self.me.name, message=message))

    def report(self, leave: Leave) -> Left:
        """Return this member's state for a leader, after `note_missing`."""
        now, unresponsive = self.acceptor.state, self.control.book.unresponsive(leave.missing)
        suspects = [each for each in self._neighbors() if each.name in self.lost]
        kill_lost((each for each in suspects if each.name in unresponsive), self._votes)
        return Left(
            begun=None if now.begun.generation == leave.begun else now.begun,
            accepted=now.accepted,
            version=now.version,
            facts=self.facts or {},
            dead=votes_of_dead(suspects, self._votes, leave.begun),
            # Others' reports would make the replies of all members different.
            quiet={
                name: each for name, each in self.silences.report().items() if name in self.quiet
            },
        )

    def interrupt(self) -> None:
        """Interrupt the training until it has left the generation."""
        ended = self.generation

        def left() -> bool:
            return self.generation != ended or self.left.is_set()

        self.spawn(interrupt_until(left, self.hooks))

    async def until_changed(self, seconds: float) -> None:
        """Wait until a generation that includes this member begins, for at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it finishes or this member closes; if it fails, end the training.

        asyncio would only log its exception, and those that wait for its work would hang.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def close(self) -> None:
        """End all tasks and connections."""
        self.stop_heartbeats(finished=True)
        for task in self._tasks:
            task.cancel()
        await self.control.close()
        self._votes.close(self.me, self.acceptor.state)

    def stop_heartbeats(self, *, finished: bool) -> None:
        """Stop the heartbeats; `finished` tells whether the training is over."""
        if self.heartbeats is not None:
            self.silences = self._no_silences()  # replies to the last start were signs of life, too
            self._note_watched(self.heartbeats.silences())
            self.heartbeats.close(finished=finished)
            self.heartbeats = None

    def _lose(self, name: str, why: Absence) -> None:
        self.lost[name] = why
        self.found_loss = True
        self.end_generation(f"worker {self.roster.rank(name)} is lost: {why}", detected=True)

    def _note_watched(self, silent_seconds: Mapping[str, float]) -> None:
        self.quiet = {}
        for member in self.roster.members:
            seconds = silent_seconds.get(member.name)
            if seconds == 0:
                self.silences.note_life(member)
            elif seconds is not None:
                hung = member.node == self.me.node and seconds >= self.faults.lease_seconds
                self.quiet[member.name] = Silence(seconds=seconds, hung=hung)
        self.silences.note(self.roster, self.quiet)

    def _no_silences(self) -> Silences:
        return Silences(self.me, self.faults.lease_seconds, asyncio.get_running_loop().time)

    def _neighbors(self) -> list[Member]:
        """Return the other members on this node."""
        return [each for each in self.others if each.node == self.me.node]
