"""From a generation to the next, whoever leads and whoever is lost meanwhile: members in one event
loop, with real connections."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.membership.crew import FACTS, PER_NODE, hooks, member
from paceline.membership import joining
from paceline.membership.hooks import Ended
from paceline.membership.leader import Leading
from paceline.membership.messages import Begin, Leave, Propose
from paceline.membership.participant import Succession
from paceline.specs import TOO_FEW_EXIT_CODE, Faults
from paceline.specs.runs.roster import Member, Roster

SOON_SECONDS = 30.0


async def one(
    rank: int, planned: int, leader: Member | None = None, faults: Faults | None = None, **told: Any
) -> Succession:
    """A member; eight of them are on a node."""
    given = replace(hooks(planned, leader), **told)
    own = Succession(member(rank), b"only this job knows it", faults or Faults(), given)
    await own.listen("127.0.0.1")
    return own


async def begun(crew: list[Succession]) -> list[Begin]:
    """What they come to."""
    try:
        all_of_them = asyncio.gather(*(each.next for each in crew))
        return list(await asyncio.wait_for(all_of_them, SOON_SECONDS))
    finally:
        for each in crew:
            await each.close()


async def after_a_duel() -> list[Begin]:
    # Alone on their nodes, so that neither can tell whether the other is dead.
    first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
    for each in crew:
        each.start(Roster(generation=0, members=(first.me, second.me)))
    second.gone = {first.me.name: "it does not answer"}
    for each in crew:
        each.leave(FACTS, "both have left")
    return await begun(crew)


@pytest.mark.parametrize("time", range(4))
def test_two_who_lead_make_way_for_each_other(time: int) -> None:
    del time  # chance decides: once says little
    begins = asyncio.run(after_a_duel())
    assert [len(begin.roster.members) for begin in begins] == [2, 2]
    # They used to propose for ever, a generation every 60 ms.
    assert max(begin.roster.generation for begin in begins) <= 12


async def lost_while_one_joins(monkeypatch: pytest.MonkeyPatch) -> list[Begin]:
    crew = [await one(rank, planned=4) for rank in range(4)]
    first, second, third, fourth = crew
    for each in crew:
        each.start(Roster(generation=0, members=tuple(each.me for each in crew)))
    asked = Leading._asked
    newcomer = await one(4, planned=4, leader=first.me)

    async def loses_one(self: Leading, question: Any, members: tuple[Member, ...]) -> Any:
        # Whoever shares a node with one that is unreachable ends it.
        assert not isinstance(question, Leave) or newcomer.me.name not in question.unreachable
        if isinstance(question, Propose) and question.roster.generation == 1:
            await third.close()
        return await asked(self, question, members)

    monkeypatch.setattr(Leading, "_asked", loses_one)
    newcomer.join(FACTS)
    while not first.waiting.joins:
        await asyncio.sleep(0.001)
    await fourth.close()
    for each in (first, second, third):
        each.leave(FACTS, "the fourth is lost")
    return await begun([first, second, newcomer])


def test_one_is_lost_after_a_newcomer_has_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = asyncio.run(lost_while_one_joins(monkeypatch))
    for begin in begins:
        assert [each.name for each in begin.roster.members] == [
            member(rank).name for rank in (0, 1, 4)
        ]
    # It used to be taken for gone, unasked, and ended itself.
    assert max(begin.roster.generation for begin in begins) <= 3


async def answered_by_one_without_a_place(monkeypatch: pytest.MonkeyPatch) -> list[Begin]:
    first, second, third = [await one(rank, planned=2) for rank in range(3)]
    made = Leading.__init__

    def knows_more(self: Leading, own: Succession) -> None:
        made(self, own)
        self._known[third.me.name] = third.me  # as from a roster that has come to nothing

    monkeypatch.setattr(Leading, "__init__", knows_more)
    for each in (first, second):
        each.start(Roster(generation=0, members=(first.me, second.me)))
        each.leave(FACTS, "both have left")
    third.join(FACTS)
    try:
        return await begun([first, second])
    finally:
        await third.close()


def test_only_who_has_a_place_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for begin in asyncio.run(answered_by_one_without_a_place(monkeypatch)):
        assert set(begin.facts) == set(begin.roster.names) == {member(0).name, member(1).name}


async def joined_after_the_leader_was_lost() -> list[Begin]:
    told: list[Member] = []
    about: dict[str, Any] = {
        "planned": 2,
        "faults": Faults(fewest_workers=2),
        "announce": lambda roster, leader: told.append(leader),
        "find_leader": lambda: told[-1],
    }
    first, second = crew = [await one(rank, **about) for rank in range(2)]
    for each in crew:
        each.start(Roster(generation=0, members=(first.me, second.me)))
    newcomer = await one(2, **about)
    newcomer.join(FACTS)
    await first.close()
    second.leave(FACTS, "the first is lost")
    return await begun([second, newcomer])


def test_one_who_waits_for_more_is_found_by_them() -> None:
    for begin in asyncio.run(joined_after_the_leader_was_lost()):
        assert [each.name for each in begin.roster.members] == [member(1).name, member(2).name]


def test_a_newcomer_does_not_wait_for_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "TOO_FEW_SECONDS", 0.5)

    async def comes() -> list[Begin]:
        lost = await one(0, planned=2)
        newcomer = await one(1, planned=2, leader=lost.me)
        await lost.close()
        newcomer.join(FACTS)
        return await begun([newcomer])

    with pytest.raises(Ended, match="nobody of those who trained answers") as error:
        asyncio.run(comes())
    assert "paceline resume" in error.value.fix
    assert error.value.exit_code == TOO_FEW_EXIT_CODE
