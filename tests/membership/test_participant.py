"""From a generation to the next, whoever leads and whoever is lost meanwhile: members in one event
loop, with real connections."""

import asyncio
import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control_plane.crew import FACTS, PER_NODE, hooks, member
from paceline.membership import joining
from paceline.membership.compact.missing import Absence
from paceline.membership.deaths.clearances import Clearances
from paceline.membership.hooks import Begun, Ended
from paceline.membership.join_queue import JoinQueue
from paceline.membership.leader import Leader
from paceline.membership.member_state import MemberState
from paceline.membership.messages import Join, Leave, Proposal
from paceline.membership.participant import Participant
from paceline.membership.rendezvous import address_files
from paceline.membership.rendezvous.address_files import announce_leader, found_leader, secret_of
from paceline.specs import TOO_FEW_EXIT_CODE, Faults
from paceline.specs.runs.roster import Member, Roster
from ranks import new_run

pytestmark = pytest.mark.usefixtures("kept_votes")
SOON_SECONDS = 30.0


async def one(
    rank: int, planned: int, leader: Member | None = None, faults: Faults | None = None, **told: Any
) -> Participant:
    """A member; eight of them are on a node."""
    given = replace(hooks(planned, leader), **told)
    own = Participant(member(rank), b"only this job knows it", faults or Faults(), given)
    await own.listen("127.0.0.1")
    return own


async def begun(crew: list[Participant], beside: Sequence[Participant] = ()) -> list[Begun]:
    """What they come to; those beside them are closed, too."""
    try:
        all_of_them = asyncio.gather(*(each.state.next for each in crew))
        return list(await asyncio.wait_for(all_of_them, SOON_SECONDS))
    finally:
        for each in (*crew, *beside):
            await each.state.close()


async def after_a_duel() -> list[Begun]:
    # Alone on their nodes, so that neither can tell whether the other is dead.
    first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
    for each in crew:
        each.state.start(Roster(generation=0, members=(first.state.me, second.state.me)))
    second.state.lost = {first.state.me.name: Absence(reason="silent")}
    for each in crew:
        each.state.leave(FACTS, "both have left")
    return await begun(crew)


@pytest.mark.parametrize("time", range(4))
def test_two_who_lead_make_way_for_each_other(time: int) -> None:
    del time  # chance decides: once says little
    begins = asyncio.run(after_a_duel())
    assert [len(begin.roster.members) for begin in begins] == [2, 2]
    # They used to propose for ever, a generation every 60 ms.
    assert max(begin.roster.generation for begin in begins) <= 12


async def lost_while_one_joins(monkeypatch: pytest.MonkeyPatch) -> list[Begun]:
    crew = [await one(rank, planned=4) for rank in range(4)]
    first, second, third, fourth = crew
    for each in crew:
        each.state.start(Roster(generation=0, members=tuple(each.state.me for each in crew)))
    asked = Leader._ask
    newcomer = await one(4, planned=4, leader=first.state.me)

    async def loses_one(
        self: Leader, question: Any, members: tuple[Member, ...], *args: Any
    ) -> Any:
        if isinstance(
            question, Leave
        ):  # whoever shares a node with one that is unresponsive ends it
            unresponsive = first.state.control.book.unresponsive(question.missing)
            assert newcomer.state.me.name not in unresponsive
        if isinstance(question, Proposal) and question.change.generation == 1:
            await third.state.close()
        return await asked(self, question, members, *args)

    monkeypatch.setattr(Leader, "_ask", loses_one)
    newcomer.join(FACTS)
    while not first.state.join_queue.current:
        await asyncio.sleep(0.001)
    await fourth.state.close()
    for each in (first, second, third):
        each.state.leave(FACTS, "the fourth is lost")
    return await begun([first, second, newcomer])


def test_one_is_lost_after_a_newcomer_has_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = asyncio.run(lost_while_one_joins(monkeypatch))
    for begin in begins:
        assert [each.name for each in begin.roster.members] == [
            member(rank).name for rank in (0, 1, 4)
        ]
    # It used to be taken for gone, unasked, and ended itself.
    assert max(begin.roster.generation for begin in begins) <= 3


async def answered_by_one_without_a_place(monkeypatch: pytest.MonkeyPatch) -> list[Begun]:
    first, second, third = [await one(rank, planned=2) for rank in range(3)]
    made = Leader.__init__

    def knows_more(self: Leader, state: MemberState) -> None:
        made(self, state)
        self._known[third.state.me.name] = (
            third.state.me
        )  # as from a roster that has come to nothing

    monkeypatch.setattr(Leader, "__init__", knows_more)
    for each in (first, second):
        each.state.start(Roster(generation=0, members=(first.state.me, second.state.me)))
        each.state.leave(FACTS, "both have left")
    third.join(FACTS)
    try:
        return await begun([first, second])
    finally:
        await third.state.close()


def test_only_who_has_a_place_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for begin in asyncio.run(answered_by_one_without_a_place(monkeypatch)):
        assert set(begin.roster.names) == {member(0).name, member(1).name}
        assert begin.fact("reached") == [FACTS["reached"]] * 2


async def joined_after_the_leader_was_lost() -> list[Begun]:
    told: list[Member] = []
    about: dict[str, Any] = {
        "planned": 2,
        "faults": Faults(fewest_workers=2),
        "announce": lambda roster, leader: told.append(leader),
        "find_leader": lambda: told[-1],
    }
    first, second = crew = [await one(rank, **about) for rank in range(2)]
    for each in crew:
        each.state.start(Roster(generation=0, members=(first.state.me, second.state.me)))
    newcomer = await one(2, **about)
    newcomer.join(FACTS)
    while not first.state.join_queue.current:
        await asyncio.sleep(0.001)
    await first.state.close()
    second.state.leave(FACTS, "the first is lost")
    return await begun([second, newcomer])


def test_one_who_waits_for_more_is_found_by_them() -> None:
    for begin in asyncio.run(joined_after_the_leader_was_lost()):
        assert [each.name for each in begin.roster.members] == [member(1).name, member(2).name]


def test_a_newcomer_does_not_wait_for_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "TOO_FEW_SECONDS", 0.5)

    async def comes() -> list[Begun]:
        lost = await one(0, planned=2)
        newcomer = await one(1, planned=2, leader=lost.state.me)
        await lost.state.close()
        newcomer.join(FACTS)
        return await begun([newcomer])

    with pytest.raises(Ended, match="no training worker answers") as error:
        asyncio.run(comes())
    assert "paceline resume" in error.value.fix
    assert error.value.exit_code == TOO_FEW_EXIT_CODE


def test_a_newcomer_tries_again_where_the_folder_could_not_be_read() -> None:
    """It used to wait for ever: the error ended what asks for its place."""

    async def comes() -> list[Begun]:
        first = await one(0, planned=2)
        first.state.start(Roster(generation=0, members=(first.state.me,)))
        failures = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * 2

        def found() -> Member:
            if failures:
                raise failures.pop()
            return first.state.me

        newcomer = await one(1, planned=2, find_leader=found)
        newcomer.join(FACTS)
        while not first.state.join_queue.current:
            await asyncio.sleep(0.001)
        first.state.leave(FACTS, "one waits to join")
        return await begun([first, newcomer])

    for begin in asyncio.run(asyncio.wait_for(comes(), 20)):
        assert set(begin.roster.names) == {member(0).name, member(1).name}


def test_a_request_to_join_that_expired_is_forgotten() -> None:
    """One whose process had died made the leader ask for room at each step, for ever."""

    async def comes_and_dies() -> tuple[list[str], bool]:
        only = await one(0, planned=2)
        only.state.start(Roster(generation=0, members=(only.state.me,)))
        only.state.join_queue = JoinQueue(0.01)
        only.state.join_queue.add(Join(member=member(1), facts=FACTS))
        await asyncio.sleep(0.02)
        only.state.leave(FACTS, "one waits to join")
        (begin,) = await begun([only])
        return [each.name for each in begin.roster.members], bool(only.state.join_queue)

    assert asyncio.run(comes_and_dies()) == ([member(0).name], False)


async def reported_again_for_each_attempt(monkeypatch: pytest.MonkeyPatch) -> list[Begun]:
    crew = [await one(PER_NODE * number, planned=3) for number in range(3)]
    for each in crew:
        each.state.start(Roster(generation=0, members=tuple(each.state.me for each in crew)))
    leader, reported = crew[0].state, crew[2].state.me.name
    accepted = Leader._is_accepted
    refused: list[Leader] = []

    async def refused_four_times(self: Leader, *args: Any) -> bool:
        if len(refused) == 4:
            return await accepted(self, *args)
        refused.append(self)
        leader.lost[reported] = Absence(reason="unreachable")
        return False

    monkeypatch.setattr(Leader, "_is_accepted", refused_four_times)
    for each in crew:
        each.state.leave(FACTS, "one cannot reach another")
    return await begun(crew[:2], beside=crew[2:])


def test_a_report_counts_once_however_often_it_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answered each time was left out after three attempts of one regroup."""
    for begin in asyncio.run(reported_again_for_each_attempt(monkeypatch)):
        assert len(begin.roster.members) == 3


def test_a_member_does_not_report_itself_as_lost() -> None:
    """Asked by a leader that had heard so, it told others; each time it was cleared once more."""

    async def asked() -> set[str]:
        first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
        for each in crew:
            each.state.start(Roster(generation=0, members=(first.state.me, second.state.me)))
        first.state.leave(FACTS, None)
        second.state.lost = {first.state.me.name: Absence(reason="silent")}
        asker, missing = second.state.me.name, second.state.missing()
        leave = Leave(asker=asker, begun=0, accepted=0, missing=missing, why="one is silent")
        try:
            assert await second.state.control.gather(leave, [first.state.me])
            return set(first.state.lost)
        finally:
            for each in crew:
                await each.state.close()

    assert asyncio.run(asked()) == set()


def test_one_that_is_reported_in_generation_after_generation_is_left_out_in_the_end() -> None:
    now = 0.0
    clearances = Clearances(lambda: now)
    for generation in range(3):
        assert not clearances.exhausted()
        clearances.add(["one"], generation)
    assert clearances.exhausted() == {"one"}
    now = 60.0
    assert not clearances.exhausted()
    clearances.add(["another"], 7)
    assert len(clearances._cleared_at) == 1  # they were kept for the whole run


def test_a_leader_is_awaited_where_the_folder_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look that failed ended the worker; the later ones of a newcomer may fail."""
    run, leader = new_run(tmp_path, 2), member(0)
    announce_leader(run, secret_of(run), 0, leader)
    failures = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * 2

    def found(*of: Any) -> Member | None:
        if failures:
            raise failures.pop()
        return found_leader(*of)

    monkeypatch.setattr(address_files, "found_leader", found)
    assert address_files.awaited_leader(run, secret_of(run)) == leader
