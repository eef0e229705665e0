"""Members who lead at the same time, each taking the others for gone, come to one generation."""

import asyncio
import sys
from pathlib import Path

import pytest

from paceline.recover.hooks import Hooks
from paceline.recover.messages import Begin
from paceline.recover.succession import Succession
from paceline.specs import Faults
from paceline.specs.roster import Roster

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.membership_job.crew import FACTS, PER_NODE, member

SOON_SECONDS = 30.0


async def on_node(number: int) -> Succession:
    """A member that is alone on its node, so that nobody can tell whether it is dead."""
    hooks = Hooks(
        interrupt=lambda: None,
        end_itself=lambda: None,
        open_store=lambda: 40_000,
        announce=lambda roster, leader: None,
        find_leader=lambda: None,
        fitting=lambda members: members,
        is_over=lambda: False,
        planned=2,
    )
    own = Succession(member(PER_NODE * number), b"only this job knows it", Faults(), hooks)
    own.me = own.me.model_copy(update={"port": await own.control.listen("127.0.0.1")})
    return own


async def after_a_duel() -> list[Begin]:
    first, second = crew = [await on_node(number) for number in range(2)]
    for each in crew:
        each.start(Roster(generation=0, members=(first.me, second.me)))
    second.gone = {first.me.name: "it does not answer"}
    for each in crew:
        each.leave(FACTS, "both have left")
    try:
        both = asyncio.gather(*(each.next for each in crew))
        return list(await asyncio.wait_for(both, SOON_SECONDS))
    finally:
        for each in crew:
            await each.close()


@pytest.mark.parametrize("time", range(4))
def test_they_make_way_for_each_other(time: int) -> None:
    del time  # chance decides: once says little
    begins = asyncio.run(after_a_duel())
    assert [len(begin.roster.members) for begin in begins] == [2, 2]
    # They used to propose for ever, a generation every 60 ms.
    assert max(begin.roster.generation for begin in begins) <= 12
