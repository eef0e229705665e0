"""Shares of global batches: each sample once, on any number of workers."""

from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from paceline.data.batches import Batches, slices_by_speed
from paceline.data.collation.form import BatchForm, pair, to_device
from paceline.data.loader import Batch, load
from paceline.data.order import Shuffled
from paceline.specs import PacelineError
from paceline.specs.even_division import slice_of


def shares(samples: int, batch: int, workers: int, steps: int) -> list[list[list[int]]]:
    """Per step and worker, the samples that count."""
    everyone = [
        Batches(Shuffled(samples, seed=0), batch, steps, workers, rank) for rank in range(workers)
    ]
    return [
        [one.indices(step)[: one.counts(step).samples] for one in everyone] for step in range(steps)
    ]


@given(
    samples=st.integers(1, 200),
    batch=st.integers(1, 60),
    workers=st.integers(1, 9),
    epochs=st.integers(1, 3),
)
def test_each_sample_once_an_epoch_and_the_same_batches_on_any_number_of_workers(
    samples: int, batch: int, workers: int, epochs: int
) -> None:
    workers = min(workers, batch)
    per_epoch = -(-samples // batch)
    steps = epochs * per_epoch
    divided = shares(samples, batch, workers, steps)
    whole = shares(samples, batch, 1, steps)
    assert [list(chain(*step)) for step in divided] == [step[0] for step in whole]
    for epoch in range(epochs):
        begin = epoch * per_epoch
        seen = chain(*(step[0] for step in whole[begin : begin + per_epoch]))
        assert sorted(seen) == list(range(samples))


@given(
    samples=st.integers(1, 20_000),
    batch=st.integers(1, 5000),
    rank=st.integers(0, 2),
    first=st.integers(0, 99),
)
def test_going_through_steps_is_as_asking_for_each(
    samples: int, batch: int, rank: int, first: int
) -> None:
    batches = Batches(
        Shuffled(samples, seed=0), max(3, batch), first + 40, workers=3, rank=rank, first_step=first
    )
    assert list(batches) == [batches.indices(step) for step in range(first, first + 40)]


@given(samples=st.integers(0, 10**6), workers=st.integers(1, 10**4), rank=st.integers(0, 10**4))
def test_slices_differ_by_one_at_the_most(samples: int, workers: int, rank: int) -> None:
    rank %= workers
    assert samples // workers <= len(slice_of(samples, workers, rank)) <= -(-samples // workers)


def test_a_worker_without_a_sample_borrows_one_that_does_not_count() -> None:
    last = Batches(Shuffled(9, seed=0), batch=8, steps=2, workers=4, rank=3)
    assert last.counts(1).samples == 0
    assert last.counts(1).global_samples == 1
    assert len(last.indices(1)) == 1


def test_a_batch_smaller_than_the_number_of_workers() -> None:
    with pytest.raises(PacelineError, match="global batch is 3, but there are 4 workers") as error:
        Batches(Shuffled(9, seed=0), batch=3, steps=1, workers=4, rank=0)
    assert "at most 3 workers, or a batch of at least 4" in str(error.value)


@given(
    batch=st.integers(1, 60),
    parts=st.integers(1, 20),
    workers=st.integers(1, 20),
    left=st.integers(1, 60),
    speeds=st.none() | st.lists(st.floats(0.1, 10), min_size=20, max_size=20),
)
@settings(deadline=None)
def test_parts_hold_the_same_samples_whoever_has_them(
    batch: int, parts: int, workers: int, left: int, speeds: list[float] | None
) -> None:
    """As a worker cuts its share: each part by itself, of full batches and of an epoch's last."""
    batch, workers = max(batch, parts), min(workers, parts)
    samples = batch + min(left, batch)
    found: list[dict[int, tuple[int, ...]]] = [{}, {}]
    for rank in range(workers):
        mine = Batches(
            Shuffled(samples, seed=0),
            batch,
            steps=2,
            workers=workers,
            rank=rank,
            speeds=tuple(speeds[:workers]) if speeds else None,
            parts=parts,
        )
        for step in range(2):
            numbers, counts = torch.tensor(mine.indices(step)), mine.counts(step)
            share = Batch.of(
                (numbers, numbers),
                BatchForm(),
                samples=counts.samples,
                global_samples=counts.global_samples,
                padding=len(numbers) - counts.samples,
            )
            cut = share.micro(len(mine.own_parts))
            for number, part in zip(mine.own_parts, cut, strict=True):
                found[step][number] = tuple(part.target.tolist()[: part.samples])
    order = Shuffled(samples, seed=0)
    for step, size in enumerate((batch, samples - batch)):
        whole = order.at(0, range(step * batch, step * batch + size)).tolist()
        expected = [slice_of(size, parts, number) for number in range(parts)]
        assert found[step] == {
            number: tuple(whole[part.start : part.stop]) for number, part in enumerate(expected)
        }


def test_a_batch_smaller_than_the_number_of_parts() -> None:
    with pytest.raises(PacelineError, match="global batch is 3, but it is divided into 4"):
        Batches(Shuffled(9, seed=0), batch=3, steps=1, workers=2, rank=0, parts=4)


class Mapped(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"image": torch.tensor([index]), "label": torch.tensor(index)}


def loaded(split: Any) -> list[Any]:
    batches = Batches(Shuffled(6, seed=0), batch=4, steps=2, workers=1, rank=0)
    return list(load(Mapped(), batches, torch.device("cpu"), BatchForm(split=split), processes=0))


def test_samples_of_another_form_need_a_split() -> None:
    with pytest.raises(PacelineError, match="dict with the keys image, label, not a pair"):
        loaded(None)
    batches = loaded(lambda batch: (batch["image"], batch["label"]))
    assert [len(batch.target) for batch in batches] == [4, 2]
    assert [batch.global_samples for batch in batches] == [4, 2]


def test_a_pair_is_two() -> None:
    with pytest.raises(PacelineError, match="list of 3"):
        pair([1, 2, 3])


def test_nests_are_moved_whole() -> None:
    nest = {"a": (torch.ones(2), [torch.zeros(1)]), "b": "text"}
    moved = to_device(nest, torch.device("meta"))
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert moved["b"] == "text"


@given(
    samples=st.integers(0, 10**5),
    speeds=st.lists(st.floats(0.01, 100), min_size=1, max_size=50).map(tuple),
)
def test_slices_follow_speeds_and_cover_the_batch(samples: int, speeds: tuple[float, ...]) -> None:
    parts = slices_by_speed(samples, speeds)
    assert list(chain(*parts)) == list(range(samples))
    for part, speed in zip(parts, speeds, strict=True):
        assert abs(len(part) - samples * speed / sum(speeds)) <= 1.001
