"""Nobody waits another lease for each worker of nodes that were lost at the same time."""

import asyncio
import time
from typing import Any

import pytest

from benchmarks.control_plane.crew import PER_NODE, member
from membership.test_participant import begun, one
from paceline.membership import control, heartbeats
from paceline.membership.compact.missing import Silence
from paceline.membership.deaths.silences import Silences
from paceline.membership.hooks import Begun
from paceline.membership.participant import Participant
from paceline.specs import Faults
from paceline.specs.runs.roster import Roster

pytestmark = pytest.mark.usefixtures("kept_votes")

LEASE_SECONDS, LIVING = 2.0, 5
ROSTER = Roster(generation=0, members=tuple(member(rank) for rank in range(3 * PER_NODE)))
ME, NEIGHBOR, FIRST, SECOND = (ROSTER.members[rank] for rank in (0, 1, PER_NODE, PER_NODE + 1))


@pytest.fixture
def silences() -> Silences:
    return Silences(ME, LEASE_SECONDS, lambda: 100.0)


def test_a_whole_node_is_suspected_for_the_silence_of_one(silences: Silences) -> None:
    assert silences.patience_seconds(SECOND, 100.0) == LEASE_SECONDS
    silences.note_unanswered(ROSTER, [FIRST.name, "nobody"], 0.75 * LEASE_SECONDS)
    assert silences.is_suspect(FIRST)
    assert silences.is_suspect(SECOND)
    assert silences.report() == {FIRST.name: Silence(seconds=1.5)}
    assert silences.patience_seconds(SECOND, 100.0) == LEASE_SECONDS / 4
    silences.note_unanswered(
        ROSTER, [FIRST.name], 5 * LEASE_SECONDS
    )  # an older report: it was heard since
    assert silences.patience_seconds(FIRST, 100.0) == LEASE_SECONDS / 4
    assert silences.patience_seconds(FIRST, 120.0) == LEASE_SECONDS / 8


def test_if_another_answers_the_node_lives(silences: Silences) -> None:
    silences.note_unanswered(ROSTER, [FIRST.name], LEASE_SECONDS)
    silences.note_life(SECOND)
    third = ROSTER.members[PER_NODE + 2]
    assert silences.is_suspect(FIRST)
    assert not silences.is_suspect(third)
    assert silences.is_spared(third)
    assert silences.patience_seconds(third, 100.0) == LEASE_SECONDS


def test_whom_this_member_hears_is_not_suspected(silences: Silences) -> None:
    """Another member was cut off, and reports its own isolation as the silence of all others."""
    silences.note_life(FIRST)
    silences.note_unanswered(ROSTER, ROSTER.names, LEASE_SECONDS)
    assert not silences.is_suspect(FIRST)
    assert silences.is_suspect(NEIGHBOR)
    assert silences.is_suspect(ROSTER.members[2 * PER_NODE])


def test_a_node_that_accepts_a_connection_lives(silences: Silences) -> None:
    """Behind a cut that was mended, members had an eighth of the lease on a busy machine."""
    silences.note_unanswered(ROSTER, [FIRST.name], 5 * LEASE_SECONDS)
    silences.note_reached(FIRST)
    assert not silences.is_suspect(SECOND)
    assert silences.patience_seconds(FIRST, 100.0) == LEASE_SECONDS / 2
    assert silences.patience_seconds(FIRST, 99.5) == 0.5 + LEASE_SECONDS / 2


def test_a_hung_member_of_a_node_that_lives_is_not_waited_for(silences: Silences) -> None:
    silences.note(ROSTER, {FIRST.name: Silence(seconds=LEASE_SECONDS, hung=True)})
    silences.note_reached(FIRST)
    assert silences.is_hung(FIRST.name)
    assert silences.patience_seconds(FIRST, 100.0) == LEASE_SECONDS / 8


def test_the_own_node_lives(silences: Silences) -> None:
    silences.note_unanswered(ROSTER, [NEIGHBOR.name], LEASE_SECONDS)
    assert silences.is_suspect(NEIGHBOR)
    assert not silences.is_suspect(ROSTER.members[2])


def _silence(lost: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a member's power: it says and answers nothing, and nothing closes its connections."""

    async def never(channel: Any) -> Any:
        del channel
        await asyncio.sleep(60)

    monkeypatch.setattr(lost.state.control, "_received_question", never)
    assert lost.state.heartbeats is not None
    for channel in lost.state.heartbeats._channels.values():
        monkeypatch.setattr(channel, "send", lambda message: None)


async def _after_a_rack(
    living: list[int],
    lost: list[int],
    monkeypatch: pytest.MonkeyPatch,
    first_ends_after_seconds: float | None = None,
) -> tuple[float, list[Begun]]:
    faults = Faults(lease_seconds=LEASE_SECONDS)
    ranks = sorted(living + lost)
    crew = {rank: await one(rank, planned=len(ranks), faults=faults) for rank in ranks}
    roster = Roster(generation=0, members=tuple(each.state.me for each in crew.values()))
    for each in crew.values():
        each.state.start(roster)
        each.state.left.set()  # their trainings leave at once
    await asyncio.sleep(LEASE_SECONDS / 2)
    for rank in lost:
        _silence(crew[rank], monkeypatch)
    began = time.monotonic()
    if first_ends_after_seconds is not None:
        await asyncio.sleep(first_ends_after_seconds)
        crew[living[0]].state.end_generation("a collective failed", detected=True)
    try:
        begins = await begun([crew[rank] for rank in living])
    finally:
        for rank in lost:
            await crew[rank].state.close()
    return time.monotonic() - began, begins


@pytest.mark.alone
def test_two_nodes_lost_together_cost_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost up to three: one for the first, and one for each level of the second's workers."""
    lost = [PER_NODE, PER_NODE + 1, 2 * PER_NODE, 2 * PER_NODE + 1]
    living = list(range(5))
    seconds, begins = asyncio.run(_after_a_rack(living, lost, monkeypatch))
    assert {each.roster.names for each in begins} == {tuple(map(_name, living))}
    assert LEASE_SECONDS / 2 < seconds < 1.7 * LEASE_SECONDS


@pytest.mark.alone
def test_nodes_with_different_watchers_cost_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members that ask the workers of a lost node did not know that it is silent."""
    for module in (control, heartbeats):
        monkeypatch.setattr(module, "FAN_OUT", 2)
    living, lost = [0, 1, 2, 3, 4], []
    for node in (2, 3):  # node 0 watches node 2, and node 1 watches node 3
        lost += [node * PER_NODE, node * PER_NODE + 1]
    living += [PER_NODE, PER_NODE + 1, PER_NODE + 2]
    seconds, begins = asyncio.run(_after_a_rack(living, lost, monkeypatch))
    assert {each.roster.names for each in begins} == {tuple(map(_name, living))}
    assert LEASE_SECONDS / 2 < seconds < 1.7 * LEASE_SECONDS


@pytest.mark.alone
def test_a_leader_that_knows_no_loss_asks_watchers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began to lead before the watcher's notice came: 1,000 workers waited a second lease."""
    for module in (control, heartbeats):
        monkeypatch.setattr(module, "FAN_OUT", 2)
    living, lost = [0, 1, 2, 3, 4], [3 * PER_NODE, 3 * PER_NODE + 1]  # node 1 watches node 3
    living += [PER_NODE, PER_NODE + 1, PER_NODE + 2, 2 * PER_NODE]
    half = LEASE_SECONDS / 2
    seconds, begins = asyncio.run(_after_a_rack(living, lost, monkeypatch, half))
    assert {each.roster.names for each in begins} == {tuple(map(_name, living))}
    assert half < seconds < 1.4 * LEASE_SECONDS


def _name(rank: int) -> str:
    return member(rank).name
