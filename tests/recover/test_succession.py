"""From a generation to the next, whoever leads and whoever is lost meanwhile: members in one event
loop, with real connections."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.recover.leading import Leading
from paceline.recover.messages import Begin, Leave, Propose
from paceline.recover.succession import Succession
from paceline.specs import Faults
from paceline.specs.roster import Member, Roster

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.membership_job.crew import FACTS, PER_NODE, hooks, member

SOON_SECONDS = 30.0


async def one(rank: int, planned: int, leader: Member | None = None) -> Succession:
    """A member; eight of them are on a node."""
    given = hooks(planned, leader)
    own = Succession(member(rank), b"only this job knows it", Faults(), given)
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
