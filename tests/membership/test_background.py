"""A failure of a member's control plane ends its training: it does not hang."""

import asyncio
from typing import Any

import pytest

from benchmarks.control_plane.crew import FACTS, PER_NODE, member
from membership.test_participant import begun, one
from paceline.membership.hooks import Ended
from paceline.membership.messages import Join
from paceline.specs.runs.roster import Roster

pytestmark = pytest.mark.usefixtures("kept_votes")
SOON_SECONDS = 10.0


def fails(*_: object) -> Any:
    raise RuntimeError("too many open files")


async def regrouped(**told: Any) -> None:
    only = await one(0, planned=1, **told)
    only.state.start(Roster(generation=0, members=(only.state.me,)))
    only.state.leave(FACTS, "it has left")
    await begun([only])


async def joined(**told: Any) -> None:
    newcomer = await one(0, planned=1, **told)
    newcomer.join(FACTS)
    await begun([newcomer])


@pytest.mark.parametrize(
    ("work", "hook"), [(regrouped, "open_store"), (regrouped, "announce"), (joined, "find_leader")]
)
def test_a_failed_task_ends_the_training(
    work: Any, hook: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """asyncio logged it when the task was collected, and the training waited for ever."""
    succeeded: list[object] = [] if hook == "announce" else [None]  # it announces the first, too

    def works_once(*given: object) -> Any:
        return fails() if succeeded else succeeded.append(given)

    with pytest.raises(Ended, match=r"control plane .* failed: .*too many open files") as error:
        asyncio.run(work(**{hook: works_once}))
    assert not error.value.by_peer
    assert "Traceback" in capfd.readouterr().err


def test_a_failed_reply_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> None:
        first, second = crew = [await one(PER_NODE * number, planned=2) for number in range(2)]
        for each in crew:
            each.state.start(Roster(generation=0, members=(first.state.me, second.state.me)))
        monkeypatch.setattr(first.state.join_queue, "add", fails)
        first.state.leave(FACTS, None)
        try:
            join = Join(member=member(2), facts=FACTS)
            assert not await second.state.control.gather(join, [first.state.me], 0.3)
            await asyncio.wait_for(first.state.next, SOON_SECONDS)
        finally:
            for each in crew:
                await each.state.close()

    with pytest.raises(Ended, match="too many open files"):
        asyncio.run(asked())


def test_a_training_that_cannot_be_interrupted_is_killed() -> None:
    async def ended() -> bool:
        killed = asyncio.Event()
        only = await one(0, planned=1, interrupt=fails, kill_process=killed.set)
        only.state.start(Roster(generation=0, members=(only.state.me,)))
        only.state.end_generation("a worker is lost", detected=True)
        try:
            return await asyncio.wait_for(killed.wait(), SOON_SECONDS)
        finally:
            await only.state.close()

    assert asyncio.run(ended())
