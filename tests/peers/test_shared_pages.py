"""Members that restore together make pages for each other, and do without one that fails."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from paceline.checkpoints.tensor_extent import Box, Piece
from paceline.checkpoints.tensor_loading import fill
from paceline.peers import shared_pages
from paceline.peers.inventory import Moment
from paceline.peers.memory_client import PeerFailed, Source
from paceline.peers.part_files import PartDescription
from paceline.peers.restored_storage import restored_storage
from paceline.peers.shared_pages import PublishedPages
from peers.crew import ROWS, WIDTH, Crew, whole_state

MEMBERS, PER_PAGE, STEP = 14, 4, 10


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pages, "WORKERS_PER_PAGE", PER_PAGE)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew([f"node {rank // 2}" for rank in range(MEMBERS)])
    made.copy(STEP)
    yield made
    made.close()


def test_each_reads_few_descriptions(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    describe, lock = Source.description, threading.Lock()

    def counted(self: Source, moment: Moment, rank: int, *, wait: bool = False) -> PartDescription:
        with lock:
            asked[threading.get_ident()] += 1
        return describe(self, moment, rank, wait=wait)

    monkeypatch.setattr(Source, "description", counted)
    crew.lose("member 5")
    restore_rows(crew, list(crew.members))
    assert max(asked.values()) <= PER_PAGE
    assert sum(asked.values()) <= MEMBERS


def test_few_workers_wait_for_no_page(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pages, "WORKERS_PER_PAGE", MEMBERS)
    monkeypatch.delattr(Source, "page")
    restore_rows(crew, list(crew.members))


def test_a_member_that_never_makes_its_page_is_done_without(crew: Crew) -> None:
    """The one that makes the root fails at its start, the one of the second page is gone."""
    names = list(crew.members)
    crew.members[names[0]].pages.withdraw(1)
    crew.lose(names[3])  # as its node's other worker, whose copy has its state, lives
    restore_rows(crew, names, without=[names[0], names[3]])


def test_whoever_waits_for_a_page_hears_at_once_that_it_never_comes(crew: Crew) -> None:
    memory = crew.members["member 0"]
    calls = crew.members["member 1"].calls(1, patience_seconds=20)
    moment = Moment(generation=0, step=STEP, workers=MEMBERS)
    threading.Timer(0.2, memory.pages.withdraw, [1]).start()
    began = time.monotonic()
    with pytest.raises(PeerFailed):
        calls.source(crew.peers["member 0"]).page(moment, 0)
    assert time.monotonic() - began < 10
    calls.close()


def restore_rows(crew: Crew, together: Sequence[str], without: Sequence[str] = ()) -> None:
    """Let members restore at the same time, each its share of the rows."""
    left = [name for name in together if name not in without]
    moment = crew.newest()
    assert moment is not None
    inventories = {name: memory.inventory() for name, memory in crew.members.items()}

    def restored(place: int) -> None:
        first, last = ROWS * place // len(left), ROWS * (place + 1) // len(left)
        rows = torch.zeros(last - first, WIDTH)
        box = Box((first, 0), (last - first, WIDTH))
        with restored_storage(
            crew.members[left[place]],
            moment,
            inventories,
            crew.peers,
            name=left[place],
            generation=1,
            together=together,
        ) as saved:
            fill([Piece("weight", (ROWS, WIDTH), box, rows)], saved)
            manifest = saved.manifest
        assert torch.equal(rows, whole_state(STEP)[first:last])
        assert manifest.step == STEP
        assert len(manifest.scalars) == MEMBERS
        assert set(manifest.tensors) == {"weight", "count"}

    with ThreadPoolExecutor(len(left)) as pool:
        list(pool.map(restored, range(len(left))))


def test_the_pages_of_a_newer_restore_stay() -> None:
    published = PublishedPages()
    for generation in (1, 2, 3):
        published.publish(generation, 0, bytes([generation]))
    published.withdraw(2)
    assert [published.find(each, 0, 0) for each in (1, 2, 3)] == [None, None, b"\3"]
    published.close()
    assert published.find(3, 0, 0) is None
