"""The form of batches: collated, counted, cut and split, with the user's functions or without."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from paceline.data.collation.form import BatchForm, to_device
from paceline.data.loader import Batch
from paceline.specs import PacelineError


@dataclass
class Pairs:
    inputs: torch.Tensor
    target: torch.Tensor


class Opaque:
    """A batch that only its user can look into; says on which device it is."""

    def __init__(self, numbers: list[int], device: str = "cpu") -> None:
        self.numbers, self.device = numbers, device

    def to(self, device: torch.device) -> "Opaque":
        return Opaque(self.numbers, device.type)


def opaque(**functions: Any) -> BatchForm:
    return BatchForm(
        collate=Opaque, split=lambda batch: (batch, torch.tensor(batch.numbers)), **functions
    )


def whole(collated: Any, form: BatchForm, samples: int, padding: int = 0) -> Batch:
    return Batch.of(collated, form, samples=samples, global_samples=samples, padding=padding)


@pytest.mark.parametrize(
    "collated",
    [
        [torch.arange(5), torch.arange(5)],
        {"inputs": torch.arange(5), "target": torch.arange(5)},
        Pairs(torch.arange(5), torch.arange(5)),
    ],
    ids=["list", "mapping", "dataclass"],
)
def test_tensors_are_cut_by_rows(collated: Any) -> None:
    def split(batch: Any) -> Any:
        if isinstance(batch, Pairs):
            return batch.inputs, batch.target
        return (batch["inputs"], batch["target"]) if isinstance(batch, dict) else batch

    batch = whole(collated, BatchForm(split=split), samples=5)
    parts = list(batch.micro(3))
    assert [part.inputs.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    padded = list(batch.micro(3, rows=2))
    assert [part.target.tolist() for part in padded] == [[0, 1], [2, 3], [4, 4]]
    assert [(part.samples, part.rows) for part in padded] == [(2, 2), (2, 2), (1, 2)]


def test_names_are_cut_with_their_rows() -> None:
    form = BatchForm(split=lambda batch: (batch["x"], batch["name"]))
    batch = whole({"x": torch.zeros(3), "name": ["a", "b", "c"], "unit": "m"}, form, samples=3)
    assert [part.target for part in batch.micro(2)] == [["a", "b"], ["c"]]


def test_an_object_moves_and_is_cut_by_its_users_functions() -> None:
    form = opaque(
        size=lambda batch: len(batch.numbers),
        cut=lambda batch, rows: Opaque(batch.numbers[rows.start : rows.stop], batch.device),
    )
    moved = to_device(form.collated([3, 4, 5]), torch.device("meta"))
    assert moved.device == "meta"
    parts = list(whole(moved, form, samples=3).micro(2))
    assert [part.inputs.numbers for part in parts] == [[3, 4], [5]]
    without_a_sample = list(whole(moved, form, samples=0, padding=1).micro(2))
    assert [(part.samples, part.inputs.numbers) for part in without_a_sample] == [(0, [3])] * 2
    with pytest.raises(PacelineError, match="micro-batches of 2 samples"):
        list(whole(moved, form, samples=3).micro(2, rows=2))


def test_without_cut_an_object_is_refused_only_where_it_must_be_cut() -> None:
    batch = whole(Opaque([3, 4, 5]), opaque(), samples=3)
    assert list(batch.micro(1)) == [batch]
    with pytest.raises(PacelineError, match="the samples of a Opaque") as refused:
        list(batch.micro(2))
    assert "cut=" in str(refused.value.fix)


@pytest.mark.parametrize("shape", [(2, 9), ()])
def test_a_tensor_without_a_row_per_sample_is_never_cut(shape: tuple[int, ...]) -> None:
    batch = whole([torch.zeros(3, 4), torch.zeros(shape)], BatchForm(), samples=3)
    with pytest.raises(PacelineError, match="no row per sample"):
        list(batch.micro(2))


def test_the_samples_of_a_batch_are_counted() -> None:
    dropping = BatchForm(collate=lambda samples: torch.stack(samples[:-1]))
    with pytest.raises(PacelineError, match="given 3 samples and returned a batch of 2"):
        dropping.collated([torch.zeros(1)] * 3)
    time_first = BatchForm(
        collate=lambda samples: torch.stack(samples, dim=1), size=lambda batch: batch.shape[1]
    )
    assert time_first.collated([torch.zeros(7)] * 3).shape == (7, 3)
