"""The leader's part in the passing from a generation to the next."""

import asyncio
import random
from typing import TYPE_CHECKING

from paceline.membership.consensus import Standing, next_roster
from paceline.membership.joining import TOO_FEW_SECONDS, fall_behind, give_up
from paceline.membership.messages import (
    PROCESS_GONE,
    Begin,
    Behind,
    Leave,
    Left,
    Propose,
    Question,
    Reply,
    Vote,
)
from paceline.specs.runs.roster import Member

if TYPE_CHECKING:
    from paceline.membership.participant import Succession

_PAUSE_SECONDS, _LONGEST_PAUSES = 0.05, 32
_SHORTER = 8
"""By which part of the lease those are waited for who are thought to be gone already."""
_CLEARED_SECONDS = 20.0


class Leading:
    """One member that leads."""

    def __init__(self, own: "Succession") -> None:
        self._own = own
        self._now = asyncio.get_running_loop().time
        self._known = {each.name: each for each in own.roster.members}
        self._unreachable: list[str] = []
        self._refused = 0
        self._announced = False

    async def round(self) -> None:
        """Try to begin the next generation, once or until there are enough for it."""
        own = self._own
        ended = own.begun
        while own.begun == ended and own.finish is None:
            if await self._attempt():
                return
            await asyncio.sleep(_PAUSE_SECONDS + self._makes_way_seconds())

    def _makes_way_seconds(self) -> float:
        """Two who lead at a time refuse what the other proposes, for ever if they keep time: each
        waits for as long as chance says, and the longer the more often it was refused."""
        longest = _PAUSE_SECONDS * min(2**self._refused - 1, _LONGEST_PAUSES)
        return random.uniform(0, longest)  # noqa: S311 -- nobody is to be kept from guessing it

    async def _attempt(self) -> bool:
        """Whether there is nothing left to do for this member."""
        own = self._own
        leave = Leave(begun=own.begun, gone=own.gone, unreachable=self._unreachable, why=own.why)
        known = tuple(self._known.values())
        asked = tuple(each for each in known if self._is_asked(each.name))
        (replies, _) = await asyncio.gather(self._asked(leave, asked), own.left.wait())
        if any(isinstance(reply, Behind) for reply in replies.values()):
            await fall_behind(own)
            return True
        left = {name: reply for name, reply in replies.items() if isinstance(reply, Left)}
        left[own.me.name] = own.standing(leave)
        self._note_who_answered(left, known)
        dead = {name for reply in left.values() for name in reply.dead}
        standings = {
            name: Standing(reply.begun or own.roster, reply.accepted, reply.word)
            for name, reply in left.items()
        }
        joins = own.waiting.joins
        room = own.hooks.planned - len(left)
        admitted = joins[: max(0, room)]
        roster = next_roster(standings, [join.member for join in admitted], dead)
        if roster is None or len(roster.members) < own.faults.fewest_workers:
            self._wait_for_more(len(left))
            return False
        training = own.hooks.fitting(len(roster.members))
        if not training:
            self._wait_for_more(len(left))
            return False
        roster = roster.model_copy(update={"training": training})
        words = dict.fromkeys(roster.names, 0) | {name: each.word for name, each in left.items()}
        if not own.seat.accept(roster, words[own.me.name]):
            self._refused += 1
            return False
        votes = await self._asked(Propose(roster=roster, words=words), roster.members)
        if not _all_yes(votes, roster.members, own.me):
            self._refused += 1
            for join in admitted:
                if join.member.name not in votes:
                    own.waiting.drop(join.member.name)
            return False
        facts = {name: reply.facts for name, reply in left.items()}
        facts |= {join.member.name: join.facts for join in admitted}
        begin = Begin(
            roster=roster,
            # Somebody may have answered who was in a roster that came to nothing, and has no place.
            facts={name: facts[name] for name in roster.names},
            gone={name: why for name, why in own.gone.items() if roster.rank(name) is None},
            why=own.why,
            address=own.me.address,
            port=own.hooks.open_store(),
        )
        others = own.waiting.without(roster)
        if own.begin(begin):
            own.waiting = others
        await self._asked(begin, roster.members)
        return True

    async def _asked(self, question: Question, members: tuple[Member, ...]) -> dict[str, Reply]:
        own = self._own
        lease = own.faults.lease_seconds
        silent = {n for n, why in own.gone.items() if not why.startswith(PROCESS_GONE)}
        suspect_nodes = {each.node for each in members if each.name in silent}

        def patience(member: Member) -> float:
            return lease / _SHORTER if member.node in suspect_nodes else lease

        others = [each for each in members if each.name != own.me.name]
        return await own.control.gather(question, others, patience)

    def _is_asked(self, name: str) -> bool:
        """Who is said to be gone may only be cut off from who says so, and is asked, in brief; but
        where that goes on, the others do not get on with it."""
        cleared = self._own.cleared.get(name)
        recently = cleared is not None and self._now() - cleared < _CLEARED_SECONDS
        return not (recently and name in self._own.gone)

    def _note_who_answered(self, left: dict[str, Left], known: tuple[Member, ...]) -> None:
        own = self._own
        for name in left:
            if own.gone.pop(name, None) is not None:
                own.cleared[name] = self._now()
        for reply in left.values():
            for roster in (reply.begun, reply.accepted):
                self._known |= {each.name: each for each in (roster.members if roster else ())}
        # Not those of whom the others have only just told: nobody has asked them yet.
        self._unreachable = [each.name for each in known if each.name not in left]
        for name in self._unreachable:
            own.gone.setdefault(name, "it does not answer")

    def _wait_for_more(self, left: int) -> None:
        """For a while; who comes would ask the one that led before, who may be gone."""
        own = self._own
        if not self._announced:
            own.hooks.announce(own.roster, own.me)
            self._announced = True
        if self._now() - own.ended_at > TOO_FEW_SECONDS:
            give_up(
                own,
                f"only {left} of {len(own.roster.members)} workers are left, too few to go on: the"
                " others may be going on without them",
            )


def _all_yes(votes: dict[str, Reply], members: tuple[Member, ...], me: Member) -> bool:
    others = [each.name for each in members if each.name != me.name]
    replies = [votes.get(name) for name in others]
    return all(isinstance(reply, Vote) and reply.yes for reply in replies)
