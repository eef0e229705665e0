"""Random numbers by sample: the same on any number of workers and loader processes."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.mixtures import Mixture
from paceline.data.order import Shuffled
from paceline.data.order_choice import order_of
from paceline.data.randomness import draws_numbers

SAMPLES = 24
EPOCHS = 2


class Augmented(Dataset[tuple[torch.Tensor, int]]):
    """Every sample is three numbers, one of each generator."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        numbers = [torch.rand(()).item(), random.random(), np.random.rand()]
        return torch.tensor(numbers, dtype=torch.float64), index


def augmented(data: Any, workers: int, processes: int, seed: int = 1) -> dict[Any, Any]:
    """What each sample was in each epoch."""
    found = {}
    for rank in range(workers):
        steps = EPOCHS * SAMPLES // 8
        batches = Batches(Shuffled(SAMPLES, seed), 8, steps, workers, rank, seed=seed)
        loaded = load(data, batches, torch.device("cpu"), BatchForm(), processes=processes)
        for step, batch in enumerate(loaded):
            for index, numbers in zip(batch.ids, batch.inputs.tolist(), strict=True):
                found[batches.epoch(step), index] = tuple(numbers)
    assert len(found) == EPOCHS * SAMPLES
    return found


@pytest.mark.parametrize(("workers", "processes"), [(4, 0), (1, 2), (4, 2)])
def test_augmentation_does_not_depend_on_who_does_it(workers: int, processes: int) -> None:
    assert augmented(Augmented(), workers, processes) == augmented(Augmented(), 1, 0)


@pytest.mark.parametrize("first_step", [1, 3, 4])
def test_a_run_that_goes_on_sees_what_it_would_have_seen(first_step: int) -> None:
    mixed = Mixture([(Augmented(), 2), (Augmented(), 1)])
    order = order_of(mixed, len(mixed), seed=1, shuffle=True)

    def seen(first: int) -> list[Any]:
        batches = Batches(order, batch=16, steps=6, workers=1, rank=0, seed=1, first_step=first)
        loaded = load(mixed, batches, torch.device("cpu"), BatchForm(), processes=0)
        return [(batch.ids, batch.inputs.tolist()) for batch in loaded]

    assert seen(first_step) == seen(0)[first_step:]


def test_samples_epochs_and_seeds_differ() -> None:
    one, other = augmented(Augmented(), 1, 0), augmented(Augmented(), 1, 0, seed=2)
    for generator in range(3):
        drawn = [numbers[generator] for found in (one, other) for numbers in found.values()]
        assert len(set(drawn)) == 2 * EPOCHS * SAMPLES


def test_a_mixture_seeds_each_sample_too() -> None:
    mixed = Mixture([(Augmented(), 1)])
    assert augmented(mixed, 4, 0) == augmented(Augmented(), 1, 0)


def test_the_trainings_own_generators_are_left_alone() -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    augmented(Augmented(), 1, 0)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # type: ignore[index]


def test_datasets_that_draw_none_are_not_wrapped() -> None:
    tensors = TensorDataset(torch.zeros(3))
    assert not draws_numbers(tensors)
    assert not draws_numbers(Mixture([(tensors, 1)]))
    assert draws_numbers(Mixture([(tensors, 1), (Augmented(), 1)]))
