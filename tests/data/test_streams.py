"""Streams: the same samples on any number of workers, from any place, however often they end."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from data.shards import write_tars
from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.order import Sequential
from paceline.data.streams import BEGINNING, Place, Reader, Stream, is_stream, load_stream
from paceline.specs import PacelineError


class Numbers(IterableDataset[Any]):
    """Yields pairs of numbers up to an end, in one pass after the other."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.end):
            yield torch.tensor(number), torch.tensor(number)


class Remembered(Numbers):
    """The same with a state of its own."""

    number = 0

    def __iter__(self) -> Iterator[Any]:
        while self.number < self.end:
            self.number += 1
            yield torch.tensor(self.number - 1), torch.tensor(self.number - 1)

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def read(
    data: Any, workers: int, *, first: int = 0, place: Place = BEGINNING, processes: int = 0
) -> list[tuple[list[int], Place]]:
    """Per step, the numbers of all workers and the place after them."""
    everyone = [
        load_stream(
            Stream(type(data)(data.end)),
            place,
            Batches(Sequential(30), batch=5, steps=6, workers=workers, rank=rank, first_step=first),
            torch.device("cpu"),
            BatchForm(),
            processes=processes,
        )
        for rank in range(workers)
    ]
    steps = []
    for batches in zip(*everyone, strict=True):
        numbers = chain(*(batch.inputs[: batch.samples].tolist() for batch in batches))
        assert batches[0].place is not None
        assert len({batch.fingerprint for batch in batches}) == 1
        steps.append((list(numbers), batches[0].place))
    return steps


@pytest.mark.parametrize("kind", [Numbers, Remembered])
def test_the_same_samples_on_any_number_of_workers_and_from_any_place(kind: type[Numbers]) -> None:
    alone = read(kind(13), workers=1)
    assert list(chain(*(numbers for numbers, _ in alone))) == [n % 13 for n in range(30)]
    assert read(kind(13), workers=3) == alone
    for done in range(1, 6):
        again = read(kind(13), workers=2, first=done, place=alone[done - 1][1])
        assert again == alone[done:]


def test_a_process_reads_ahead() -> None:
    assert read(Remembered(13), workers=1, processes=1) == read(Remembered(13), workers=1)


def test_a_stateful_loader_of_torchdata_is_a_stream() -> None:
    def shuffled() -> Stream:
        generator = torch.Generator().manual_seed(3)
        loader = StatefulDataLoader(
            list(range(13)), batch_size=None, shuffle=True, generator=generator
        )
        assert is_stream(loader)
        return Stream(loader)

    reader = Reader(shuffled(), BEGINNING)
    assert len({next(reader) for _ in range(9)}) == 9
    place = json.loads(json.dumps(reader.place()))  # as a checkpoint stores it
    again = Reader(shuffled(), place)
    assert [next(again) for _ in range(9)] == [next(reader) for _ in range(9)]


def test_a_stream_of_webdataset_is_read_again_and_skipped(tmp_path: Path) -> None:
    write_tars(tmp_path, [5, 7])
    urls = [str(path) for path in sorted(tmp_path.glob("*.tar"))]

    def tars() -> Stream:
        return Stream(
            webdataset.WebDataset(urls, shardshuffle=False, nodesplitter=lambda each: each)
        )

    reader = Reader(tars(), BEGINNING)
    assert [next(reader)["cls"] for _ in range(9)] == [b"%d" % number for number in range(9)]
    again = Reader(tars(), reader.place())
    assert [next(again)["cls"] for _ in range(5)] == [next(reader)["cls"] for _ in range(5)]


def test_looking_at_the_first_samples_does_not_consume_them() -> None:
    stream = Stream(Remembered(3))
    for _ in range(2):
        assert [int(number) for number, _ in stream.head(4)] == [0, 1, 2, 0]


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(PacelineError, match="has no samples"):
        Stream(Numbers(0)).head(1)


def test_what_is_a_stream() -> None:
    assert is_stream(Numbers(3))
    assert is_stream(iter([1]))
    assert not is_stream([1, 2])
    assert not is_stream(torch.utils.data.TensorDataset(torch.zeros(2)))
    assert not is_stream(torch.utils.data.DataLoader(Numbers(3), batch_size=2))
