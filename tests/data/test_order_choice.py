"""A training's own order, a dataset's own, and what is wrong with some of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from paceline.data.order import Indices, Order, Sequential, Shuffled
from paceline.data.order_choice import order_of
from paceline.specs import PacelineError
from train.trainings import classification


@dataclass(frozen=True)
class Growing:
    """A curriculum: an epoch has the first samples only, and the next epoch the next ones."""

    samples: int = 10

    def at(self, epoch: int, positions: range) -> Indices:
        return np.arange(positions.start, positions.stop, dtype=np.uint64) + np.uint64(10 * epoch)


@dataclass(frozen=True)
class Giving:
    """An order that gives what it was told to."""

    given: Any
    samples: int = 4

    def at(self, epoch: int, positions: range) -> Any:
        return np.asarray(self.given)


class Backwards(Dataset[int]):
    def order(self, seed: int, shuffle: bool) -> Order:
        return Giving([3, 2, 1, 0]) if shuffle else Sequential(4)


def test_the_hook_wins_over_the_dataset_and_the_dataset_over_the_house() -> None:
    assert order_of(object(), 4, seed=1, shuffle=True) == Shuffled(4, 1)
    assert order_of(object(), 4, seed=1, shuffle=False) == Sequential(4)
    assert order_of(Backwards(), 4, 1, True).at(0, range(4)).tolist() == [3, 2, 1, 0]
    assert order_of(Backwards(), 4, 1, False).at(0, range(4)).tolist() == [0, 1, 2, 3]
    hooked = order_of(Backwards(), 20, 1, True, lambda seed: Growing())
    assert hooked.at(1, range(2)).tolist() == [10, 11]


def test_epochs_are_as_long_as_the_order_says() -> None:
    training = classification(200, steps=None, epochs=3, batch=5, order=lambda seed: Growing())
    assert training.total_steps == 3 * 2
    assert training.sample_order().samples == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1, 2, 4], "positions 0 to 3, returned sample 4, but the dataset has 4"),
        ([0, -1, 2, 3], "returned sample -1, but the dataset has 4"),
        ([0, 1, 2], r"returned an array of int64 with the shape \(3,\)"),
        ([0.0, 1, 2, 3], "returned an array of float64"),
    ],
)
def test_an_order_that_leads_out_of_the_dataset(given: list[float], message: str) -> None:
    order = order_of(None, 4, 0, True, lambda seed: Giving(given))
    with pytest.raises(PacelineError, match=rf"Training\(order=…\).*{message}"):
        order.at(0, range(4))


def test_what_is_no_order() -> None:
    with pytest.raises(PacelineError, match="returned a list, not a sample order"):
        order_of(None, 4, 0, True, lambda seed: [1, 2])  # type: ignore[arg-type,return-value]
    with pytest.raises(PacelineError, match="a sample order of 0 samples"):
        order_of(None, 4, 0, True, lambda seed: Giving([], samples=0))
