"""The leader's role: collect the members' states, propose a roster, begin the generation."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from paceline.membership.compact.answers import grouped_facts
from paceline.membership.compact.missing import Absence
from paceline.membership.consensus import AcceptorState, next_roster
from paceline.membership.heartbeats import watchers_of_nodes
from paceline.membership.joining import TOO_FEW_SECONDS, rejoin
from paceline.membership.member_state import MemberState
from paceline.membership.messages import (
    Begin,
    Join,
    LastVote,
    Leave,
    Left,
    Outdated,
    Overtaken,
    Proposal,
    Question,
    Reply,
    Vote,
)
from paceline.specs.runs.roster import Member, Roster

_PAUSE_SECONDS, _MAX_PAUSES = 0.05, 32
_LONGEST_PAUSE_DIVISOR = 4
_UNRESPONSIVE_LEASES = 0.75
"""How long a member does not answer, although its node does, before a neighbor kills it: less than
the lease for which a leader waits for its answer."""
_WATCHERS_DIVISOR = 8
"""Members that watch nodes are asked before the others for a lease divided by this, at most."""


class Leader:
    """A member's role as the leader of one change of generation.

    While it waits for answers, another leader may begin the next generation, or this member may
    become a newcomer. What it has asked is then about a generation that is over: it must not act on
    the answers.
    """

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._me, self._roster = state.me, state.roster
        self._now = asyncio.get_running_loop().time
        self._known = {each.name: each for each in self._roster.members}
        self._absent: list[str] = []
        """Members that did not answer the last question."""
        self._answered_at = {state.me.node: self._now()}
        """By node: when a member of it answered this leader first."""
        self._refused = 0
        self._too_few = 0
        """Number of attempts that reached too few members for the next generation."""
        self._announced = False

    async def lead(self) -> None:
        """Try to begin the next generation until one has begun or this member must not lead."""
        while self._stands():
            if await self._attempt():
                return
            await asyncio.sleep(_PAUSE_SECONDS + self._backoff_seconds())

    def _stands(self) -> bool:
        """Return whether this member is still what it was when it began to lead."""
        state = self._state
        return state.roster is self._roster and state.me is self._me and state.end is None

    def _backoff_seconds(self) -> float:
        """Return a random, growing pause.

        Two simultaneous leaders refuse each other's proposals, forever if they retry in lockstep.
        And the smaller side of a cut asks for as long as the cut lasts.
        """
        longest = _PAUSE_SECONDS * min(2**self._refused - 1, _MAX_PAUSES)
        pause = random.uniform(0, longest)  # noqa: S311 -- nobody is to be kept from guessing it
        most = self._state.faults.lease_seconds / _LONGEST_PAUSE_DIVISOR
        return pause + min(_PAUSE_SECONDS * self._too_few, most)

    async def _attempt(self) -> bool:
        """Try once; return whether this leader is done."""
        state = self._state
        leave = Leave(
            asker=self._me.name,
            begun=state.generation,
            accepted=state.accepted_generation,
            missing=state.missing(self._unresponsive()),
            why=state.why,
        )
        known = tuple(self._known.values())
        # One reported as lost may only be cut off from the member that reported it: it is asked,
        # too, unless it has been cleared in several generations recently.
        unasked = state.lost.keys() & state.cleared.exhausted()
        asked = tuple(each for each in known if each.name not in unasked)
        asked_at = self._now()
        (replies, _) = await asyncio.gather(self._ask_to_leave(leave, asked), state.left.wait())
        await state.until_begun(self._me.name)
        if not self._stands():
            return True
        if any(isinstance(reply, Outdated) for reply in replies.values()):
            await asyncio.gather(self._tell_excluded(replies), rejoin(state, replies.values()))
            return False
        left = {name: reply for name, reply in replies.items() if isinstance(reply, Left)}
        left[state.me.name] = state.report(leave)
        self._note_answers(left, known, self._now() - asked_at)
        room = state.hooks.planned - len(left)
        admitted = state.join_queue.current[: max(0, room)]
        roster = self._proposed(left, admitted)
        if roster is None:
            self._too_few += 1
            self._wait_for_more(len(left))
            return False
        if not await self._is_accepted(roster, left, admitted):
            self._refused += 1
            state.note_refused()
            return False
        await self._begin(roster, left, admitted)
        return True

    async def _tell_excluded(self, replies: dict[str, Reply]) -> None:
        """Tell members that follow this leader that others have continued without them."""
        newer = [each for each in replies.values() if isinstance(each, Outdated)]
        newest = max(newer, key=lambda each: each.generation)
        digest = self._state.control.book.add(self._roster)
        names = set(self._state.control.book.names(newest.excluded, digest))
        followers = [
            each
            for each in self._roster.members
            if each.name in names and isinstance(replies.get(each.name), Left)
        ]
        news = Overtaken(begun=self._roster.generation, newer=newest.generation)
        await self._ask(news, followers, digest)

    def _proposed(self, left: dict[str, Left], admitted: list[Join]) -> Roster | None:
        """Return the roster to propose; None if too few members are left to train."""
        state = self._state
        dead = {
            each.name: AcceptorState(each.begun or self._roster, each.accepted, 0)
            for reply in left.values()
            for each in reply.dead
        }
        acceptors = {
            name: AcceptorState(reply.begun or self._roster, reply.accepted, reply.version)
            for name, reply in left.items()
        }
        roster = next_roster(acceptors, [join.member for join in admitted], dead)
        if roster is None or len(roster.members) < state.faults.fewest_workers:
            return None
        training = state.hooks.fitting(len(roster.members))
        return roster.model_copy(update={"training": training}) if training else None

    async def _is_accepted(
        self, roster: Roster, left: dict[str, Left], admitted: list[Join]
    ) -> bool:
        """Propose a roster; return whether all its members accept it and this one follows it still.

        One that another leader has proposed meanwhile may have the vote of this member, too.
        """
        state = self._state
        versions = dict.fromkeys(roster.names, 0)
        versions |= {name: each.version for name, each in left.items()}
        if not state.accept(roster, versions[state.me.name], self._me.name):
            return False
        book = state.control.book
        change = book.change(book.add(self._roster), roster)
        version = Counter(versions.values()).most_common(1)[0][0]
        others = {name: each for name, each in versions.items() if each != version}
        name = self._me.name
        proposal = Proposal(asker=name, change=change, version=version, versions=others)
        votes = await self._ask(proposal, roster.members, change.digest)
        if not self._stands():
            return False
        if _all_yes(votes, roster.members, state.me):
            return state.acceptor.state.accepted is roster
        for join in admitted:
            if join.member.name not in votes:
                state.join_queue.drop(join.member.name)
        return False

    async def _begin(self, roster: Roster, left: dict[str, Left], admitted: list[Join]) -> None:
        state = self._state
        facts = {name: reply.facts for name, reply in left.items()}
        facts |= {join.member.name: join.facts for join in admitted}
        lost = {name: why for name, why in state.lost.items() if roster.rank(name) is None}
        book = state.control.book
        digest = book.add(roster)
        begin = Begin(
            roster=digest,
            # A member of a roster that never began may have replied without a place in this roster.
            facts=grouped_facts({name: facts[name] for name in roster.names}, book, digest),
            missing=book.missing(book.add(self._roster), lost, {}, ()),
            why=state.why,
            address=state.me.address,
            port=state.hooks.open_store(),
        )
        waiting = state.join_queue.without(roster)
        if state.begin(begin):
            state.join_queue = waiting
        await self._ask(begin, roster.members, digest)

    async def _ask_to_leave(self, leave: Leave, members: tuple[Member, ...]) -> dict[str, Reply]:
        """Ask members to leave; do not wait long for nodes that are probably lost as a whole.

        If any member of such a node answers, the node lives, and the others get the whole lease.
        All who ask further members must know of every silence. So the members that watch nodes are
        asked first, where a node is known to be silent, since others may be, too, and where no loss
        is known: the leader may have heard of a failed collective before the reason for it.
        """
        state = self._state
        roster = state.control.book.add(self._roster)
        replies: dict[str, Reply] = {}
        if leave.missing.quiet or not leave.missing.lost:
            ranks = watchers_of_nodes(self._roster)
            watchers = {self._roster.members[rank].name for rank in ranks}
            first = [each for each in members if each.name in watchers]
            seconds = state.faults.lease_seconds / _WATCHERS_DIVISOR
            replies = await self._ask(leave, first, roster, seconds)
            leave = leave.model_copy(update={"missing": state.missing(self._unresponsive())})
            members = tuple(each for each in members if each.name not in replies)
        replies |= await self._ask(leave, members, roster)
        missing = [each for each in members if each.name not in replies]
        late = [each for each in missing if state.silences.is_spared(each)]
        return replies | await self._ask(leave, late, roster)

    async def _ask(
        self,
        question: Question,
        members: Sequence[Member],
        roster: str,
        timeout_seconds: float | None = None,
    ) -> dict[str, Reply]:
        state = self._state
        others = [each for each in members if each.name != state.me.name]
        return await state.control.gather(question, others, timeout_seconds, roster=roster)

    def _unresponsive(self) -> list[str]:
        """Return absent members that are hung, as far as members of their nodes can tell.

        A node that answers only now, after a network cut, has members that will do so, too.
        """
        silences = self._state.silences
        longest = _UNRESPONSIVE_LEASES * self._state.faults.lease_seconds

        def has_had_time(node: str) -> bool:
            return self._now() - self._answered_at.get(node, self._now()) >= longest

        return [
            name
            for name in self._absent
            if silences.is_hung(name) or has_had_time(self._known[name].node)
        ]

    def _note_answers(
        self, left: dict[str, Left], known: tuple[Member, ...], waited_seconds: float
    ) -> None:
        """Note the members that answered, and those that did not within these seconds."""
        state = self._state
        cleared = state.lost.keys() & left.keys()
        state.lost = {name: why for name, why in state.lost.items() if name not in cleared}
        state.cleared.add(cleared, self._roster.generation)
        states: list[Left | LastVote] = [*left.values()]
        states += [vote for reply in left.values() for vote in reply.dead]
        rosters = (roster for each in states for roster in (each.begun, each.accepted))
        for roster in {id(each): each for each in rosters if each is not None}.values():
            self._known |= {each.name: each for each in roster.members}
        # Exclude members that these replies were the first to name: they have not been asked yet.
        self._absent = [each.name for each in known if each.name not in left]
        for each in known:
            if each.name in left:
                self._answered_at.setdefault(each.node, self._now())
        # A process that is gone refuses connections at once: that says nothing about its node.
        if waited_seconds >= state.faults.lease_seconds:
            state.silences.note_unanswered(self._roster, self._absent, waited_seconds)
        for name in self._absent:
            suspect = state.silences.is_suspect(self._known[name])
            reason: Literal["silent", "unreachable"] = "silent" if suspect else "unreachable"
            state.lost.setdefault(name, Absence(reason=reason))

    def _wait_for_more(self, left: int) -> None:
        """Publish this leader, whose predecessor may be lost, and give up after a time limit."""
        state = self._state
        if not self._announced:
            state.hooks.announce(self._roster, state.me)
            self._announced = True
        if self._now() - state.ended_at > TOO_FEW_SECONDS:
            state.give_up(
                f"only {left} of {len(self._roster.members)} workers are left, too few to continue;"
                " the others may be training without them"
            )


def _all_yes(votes: dict[str, Reply], members: tuple[Member, ...], me: Member) -> bool:
    others = [each.name for each in members if each.name != me.name]
    replies = [votes.get(name) for name in others]
    return all(isinstance(reply, Vote) and reply.yes for reply in replies)
