"""A member that answers within its lease is not left out because somebody was busy."""

import asyncio
import time
from typing import Any

import pytest

from benchmarks.control_plane.crew import FACTS, PER_NODE, member
from membership.test_participant import begun, one
from paceline.membership import control
from paceline.membership.channel import MAX_FIRST_BYTES, Channel
from paceline.membership.compact.missing import Absence, Missing
from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.hooks import Begun
from paceline.membership.messages import Ask, Leave, Notice
from paceline.membership.participant import Participant
from paceline.membership.patience import patiently
from paceline.specs.runs.roster import Roster

pytestmark = pytest.mark.usefixtures("kept_votes")


def test_the_time_in_which_this_process_was_late_does_not_count() -> None:
    """The answer had arrived, but the timer of 0.1 s was looked at first."""

    async def answered_meanwhile() -> str:
        reader = asyncio.StreamReader()
        waiting = asyncio.create_task(patiently(reader.readexactly(2), 0.1))
        await asyncio.sleep(0.02)
        asyncio.get_running_loop().call_later(0.001, lambda: time.sleep(0.3))
        asyncio.get_running_loop().call_later(0.101, lambda: reader.feed_data(b"ok"))
        return (await waiting).decode()

    assert asyncio.run(answered_meanwhile()) == "ok"


def test_a_member_that_does_not_answer_is_given_up() -> None:
    async def silence() -> None:
        await patiently(asyncio.sleep(60), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(silence())


def test_a_burst_of_questions_to_one_member_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener ends its oldest handshakes; the members behind them took it for lost."""
    monkeypatch.setattr(control, "_MAX_STRANGERS", 4)

    async def asked_by_many() -> list[Any]:
        leader = await one(0, planned=2)
        crew = [await one(rank, planned=2) for rank in range(1, 41)]
        leader.state.start(Roster(generation=0, members=(leader.state.me,)))
        notice = Notice(
            asker="0", begun=-1, accepted=-1, missing=Missing(), why="all at the same time"
        )
        try:
            return await asyncio.gather(
                *(each.state.control.gather(notice, [leader.state.me]) for each in crew)
            )
        finally:
            for each in (leader, *crew):
                await each.state.close()

    assert all(len(replies) == 1 for replies in asyncio.run(asked_by_many()))


def test_the_neighbor_of_a_suspect_gets_the_whole_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had an eighth of the lease, and was left out on a busy node that lived."""

    async def one_is_slow() -> list[Begun]:
        crew = [await one(rank, planned=3) for rank in (0, PER_NODE, PER_NODE + 1)]
        leader, suspect, slow = crew
        _late(slow, monkeypatch)
        for each in crew:
            each.state.start(Roster(generation=0, members=tuple(own.state.me for own in crew)))
        lease = leader.state.faults.lease_seconds
        leader.state.silences.note_unanswered(leader.state.roster, [suspect.state.me.name], lease)
        for each in crew:
            each.state.leave(FACTS, "all have left")
        return await begun(crew)

    begins = asyncio.run(one_is_slow())
    assert [len(each.roster.members) for each in begins] == [3, 3, 3]
    assert [each.roster.generation for each in begins] == [1, 1, 1]


def _late(member: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a member receive each question after a quarter of the lease."""
    received = member.state.control._received_question

    async def receives_late(channel: Channel) -> Ask:
        await asyncio.sleep(member.state.faults.lease_seconds / 4)
        return await received(channel)

    monkeypatch.setattr(member.state.control, "_received_question", receives_late)


def test_a_leader_does_not_suspect_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker before it was killed; the others of its node had an eighth of the lease."""

    async def the_first_is_silent() -> list[Begun]:
        crew = [await one(rank, planned=3) for rank in range(3)]
        first, leader, slow = crew
        _late(slow, monkeypatch)
        for each in crew:
            each.state.start(Roster(generation=0, members=tuple(own.state.me for own in crew)))
        await first.state.close()
        leader.state.lost = {first.state.me.name: Absence(reason="silent")}
        lease = leader.state.faults.lease_seconds
        leader.state.silences.note_unanswered(leader.state.roster, [first.state.me.name], lease)
        for each in (leader, slow):
            each.state.leave(FACTS, "the first is lost")
        return await begun([leader, slow])

    begins = asyncio.run(the_first_is_silent())
    assert [len(each.roster.members) for each in begins] == [2, 2]
    assert [each.roster.generation for each in begins] == [1, 1]


def test_who_refuses_a_connection_was_not_silent_for_a_lease() -> None:
    """Otherwise, a second attempt would give the others of its node an eighth of the lease."""

    async def one_is_gone() -> list[Begun]:
        crew = [await one(rank, planned=3) for rank in (0, PER_NODE, PER_NODE + 1)]
        for each in crew:
            each.state.start(Roster(generation=0, members=tuple(own.state.me for own in crew)))
        leader, gone, neighbor = crew
        await gone.state.close()
        for each in (leader, neighbor):
            each.state.leave(FACTS, "one is lost")
        return await begun([leader, neighbor])

    for each in asyncio.run(one_is_gone()):
        assert [why.reason for why in each.lost.values()] == ["unreachable"]


def test_a_long_answer_on_a_new_connection_is_read() -> None:
    """It was refused, since the other end had not proved yet that it is a member."""

    async def all_have_long_facts() -> list[Begun]:
        crew = [await one(rank, planned=3) for rank in range(3)]
        for each in crew:
            each.state.start(Roster(generation=0, members=tuple(own.state.me for own in crew)))
        for each in crew:
            each.state.leave({**FACTS, "copies": "x" * 2 * MAX_FIRST_BYTES}, "all have left")
        return await begun(crew)

    begins = asyncio.run(all_have_long_facts())
    assert [len(each.roster.members) for each in begins] == [3, 3, 3]
    assert [each.roster.generation for each in begins] == [1, 1, 1]


def test_a_newcomer_is_sent_the_whole_roster() -> None:
    """It does not know the roster that a proposal differs from."""

    async def one_joins() -> list[Begun]:
        crew = [await one(rank, planned=3) for rank in range(2)]
        newcomer = await one(2, planned=3, leader=crew[0].state.me)
        for each in crew:
            each.state.start(Roster(generation=0, members=tuple(own.state.me for own in crew)))
        newcomer.join({**FACTS, "reached": 0})
        while not crew[0].state.join_queue.current:
            await asyncio.sleep(0.001)
        for each in crew:
            each.state.leave(FACTS, "one joins")
        return await begun([*crew, newcomer])

    for begin in asyncio.run(one_joins()):
        assert len(begin.roster.members) == 3
        assert begin.fact("reached") == [FACTS["reached"], FACTS["reached"], 0]


def test_an_answer_counts_however_many_rosters_were_proposed_meanwhile() -> None:
    """The asker had forgotten the roster by whose ranks the answer names members."""

    async def asked() -> set[str]:
        first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
        roster = Roster(generation=0, members=(first.state.me, second.state.me))
        for each in crew:
            each.state.start(roster)
        book = first.state.control.book
        missing = book.missing(roster.digest, {}, {}, ())
        leave = Leave(asker=first.state.me.name, begun=0, accepted=0, missing=missing, why="")
        others, digest = first.state.others, roster.digest
        asking = asyncio.create_task(first.state.control.gather(leave, others, roster=digest))
        for _ in range(5):  # it has written the question, and opens the connection
            await asyncio.sleep(0)
        for generation in range(1, 40):
            book.add(Roster(generation=generation, members=roster.members))
        second.state.leave(FACTS, None)
        try:
            return set(await asking)
        finally:
            for each in crew:
                await each.state.close()

    assert asyncio.run(asked()) == {member(PER_NODE).name}


def test_rosters_are_forgotten_once_nobody_asks_about_them() -> None:
    book, members = RosterBook(), (member(0),)
    first = book.add(Roster(generation=0, members=members))
    with book.keeping(first):
        for generation in range(1, 40):
            book.add(Roster(generation=generation, members=members))
        assert book.roster(first) is not None
    book.add(Roster(generation=40, members=members))
    assert book.roster(first) is None
    assert len(book._rosters) <= 16
