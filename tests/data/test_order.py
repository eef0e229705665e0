"""The order of samples is a permutation, well mixed, and starts anywhere at once."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.order import Sequential, Shuffled


@given(samples=st.integers(1, 3000), seed=st.integers(0, 2**64), epoch=st.integers(0, 10**6))
def test_a_permutation_of_any_size(samples: int, seed: int, epoch: int) -> None:
    order = Shuffled(samples, seed).at(epoch, range(samples))
    assert sorted(order.tolist()) == list(range(samples))


@given(samples=st.integers(1, 3000), begin=st.integers(0, 2999), length=st.integers(0, 100))
def test_any_part_is_the_part_of_the_whole(samples: int, begin: int, length: int) -> None:
    begin = min(begin, samples)
    part = range(begin, min(begin + length, samples))
    order = Shuffled(samples, seed=3)
    assert (order.at(1, part) == order.at(1, range(samples))[part.start : part.stop]).all()


def test_epochs_and_seeds_differ() -> None:
    orders = [Shuffled(1000, seed).at(epoch, range(1000)) for seed in (0, 1) for epoch in (0, 1)]
    for index, one in enumerate(orders):
        for other in orders[index + 1 :]:
            assert (one == other).mean() < 0.02


def test_positions_and_samples_are_not_correlated() -> None:
    samples = 20_000
    order = Shuffled(samples, seed=5).at(0, range(samples)).astype(float)
    assert abs(np.corrcoef(order, np.arange(samples))[0, 1]) < 0.03
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.03


def test_a_million_million_samples_start_anywhere_at_once() -> None:
    begin = time.perf_counter()
    order = Shuffled(10**12, seed=1).at(0, range(10**11, 10**11 + 512))
    assert time.perf_counter() - begin < 0.1
    assert len(set(order.tolist())) == 512
    assert order.max() < 10**12


def test_sequential_is_the_datasets_own() -> None:
    assert Sequential(10).at(3, range(2, 5)).tolist() == [2, 3, 4]
