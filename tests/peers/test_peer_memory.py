"""State in peers' memory: who may be lost, and what is read back is what was there."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from paceline.peers.inventory import Moment
from paceline.peers.peer_memory import Copied
from peers.crew import Crew

NODES = ["a", "a", "b", "b", "c", "c"]


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    made: list[Crew] = []
    yield made
    for crew in made:
        crew.close()


def survivors_restore(crew: Crew, lost: tuple[str, ...], step: int) -> None:
    crew.lose(*lost)
    for name in (min(crew.members), max(crew.members)):
        assert crew.restored(name) == step


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("parity_group", [0, 2, 3, 4])
def test_any_one_may_be_lost(lost: int, parity_group: int, crews: list[Crew]) -> None:
    crew = Crew("abcd", parity_group=parity_group)
    crews.append(crew)
    crew.copy(10)
    crew.copy(20)
    assert all(isinstance(told[20], Copied) for told in crew.told.values()), crew.told
    survivors_restore(crew, (f"member {lost}",), 20)


@pytest.mark.parametrize("lost", list(combinations(range(5), 2)), ids=str)
def test_any_two_with_two_rows_of_parity(lost: tuple[int, int], crews: list[Crew]) -> None:
    crew = Crew("abcde", parity_group=5, parity=2)
    crews.append(crew)
    crew.copy(10)
    survivors_restore(crew, tuple(f"member {each}" for each in lost), 10)


@pytest.mark.parametrize("node", "abc")
@pytest.mark.parametrize("parity_group", [0, 3])
def test_any_node_may_be_lost(node: str, parity_group: int, crews: list[Crew]) -> None:
    crew = Crew(NODES, parity_group=parity_group)
    crews.append(crew)
    crew.copy(10)
    lost = tuple(name for name, peer in crew.peers.items() if peer.node == node)
    survivors_restore(crew, lost, 10)


def test_more_than_that_is_known_to_be_lost(crews: list[Crew]) -> None:
    crew = Crew("abcd", parity_group=4)
    crews.append(crew)
    crew.copy(10)
    crew.lose("member 0", "member 2")
    assert crew.newest() is None


@pytest.mark.parametrize(("parity_group", "parity"), [(0, 1), (4, 1), (4, 2)])
def test_the_traffic_is_what_is_said(parity_group: int, parity: int, crews: list[Crew]) -> None:
    crew = Crew("abcd", parity_group=parity_group, parity=parity)
    crews.append(crew)
    crew.copy(10)
    copied = [each for told in crew.told.values() if isinstance(each := told[10], Copied)]
    assert len(copied) == 4
    state_bytes = sum(each.bytes for each in copied)
    # A copy goes to one peer as a whole; with parity, each row takes one part of every worker.
    copies = parity if parity_group else 1
    assert sum(each.received_bytes for each in copied) == pytest.approx(
        copies * state_bytes, rel=1e-3
    )


def test_a_spare_is_filled(crews: list[Crew]) -> None:
    crew = Crew("abc")
    crews.append(crew)
    crew.copy(10)
    crew.lose("member 1")
    crew.add("spare", "d")
    assert crew.restored("spare") == 10
    crew.join(1, ["member 0", "spare", "member 2"], step=10)
    crew.copy(20)
    crew.lose("member 0")
    assert crew.newest() == Moment(generation=1, step=20, workers=3)
    assert crew.restored("spare", generation=2) == 20


def test_the_one_before_stays_until_the_new_one_is_whole(crews: list[Crew]) -> None:
    crew = Crew("abcd", patience_seconds=0.3)
    crews.append(crew)
    crew.copy(10)
    crew.copy(20, without=["member 1"])  # it hangs
    assert sum(isinstance(told[20], str) for told in crew.told.values() if 20 in told) == 1
    crew.lose("member 1")
    assert crew.restored("member 0") == 10
    crew.join(1, ["member 0", "member 2", "member 3"], step=10)
    assert crew.restored("member 0", generation=2) == 10  # of the generation before
    crew.copy(20)
    crew.lose("member 2")
    assert crew.restored("member 3", generation=2) == 20


def test_what_came_after_the_step_that_a_generation_begins_with_is_gone(crews: list[Crew]) -> None:
    crew = Crew("ab")
    crews.append(crew)
    crew.copy(10)
    crew.copy(20)
    crew.join(1, ["member 0", "member 1"], step=10)
    assert crew.newest() == Moment(generation=0, step=10, workers=2)


def test_what_is_complete_everywhere_lets_the_older_be_forgotten(crews: list[Crew]) -> None:
    crew = Crew("ab")
    crews.append(crew)
    for step in (10, 20, 30, 40):
        crew.copy(step)
    memory = crew.members["member 0"]
    assert [held.moment.step for held in memory.inventory().held] == [20, 30, 40]
    assert memory.complete_step == 40
    memory.forget(before=40)
    assert [held.moment.step for held in memory.inventory().held] == [40]


def test_an_older_generation_is_not_answered(crews: list[Crew]) -> None:
    crew = Crew("abc")
    crews.append(crew)
    crew.copy(10)
    # Member 0 has not heard of it; the others go on without it.
    behind = crew.members.pop("member 0")
    crew.join(1, ["member 1", "member 2"], step=10)
    crew.members["member 0"] = behind
    with pytest.raises(OSError, match="this is generation 1, not 0"):
        crew.restored("member 0", generation=0)


def test_one_worker_keeps_its_own(crews: list[Crew]) -> None:
    crew = Crew("a")
    crews.append(crew)
    crew.copy(10)
    assert crew.restored("member 0") == 10
