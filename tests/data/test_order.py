"""The order of samples is a permutation, well mixed, and starts anywhere at once."""

import math
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.batches import Batches
from paceline.data.order import Sequential, Shuffled

pytestmark = pytest.mark.alone


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


def chi_square(counts: "np.ndarray[Any, Any]", expected: float) -> float:
    """How many standard deviations the statistic lies above what chance gives."""
    freedom = counts.size - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - freedom) / math.sqrt(2 * freedom)


# A run of 20,000 positions anywhere, of a few samples or of a million million.
LENGTH = 20_000
ANYWHERE = {
    "samples": st.integers(10**6, 10**12),
    "where": st.floats(0, 1),
    "seed": st.integers(0, 2**63),
}


def run_of(samples: int, where: float, seed: int, epoch: int = 0) -> "np.ndarray[Any, Any]":
    begin = int(where * (samples - LENGTH))
    return Shuffled(samples, seed).at(epoch, range(begin, begin + LENGTH)).astype(np.float64)


@settings(max_examples=50)
@given(**ANYWHERE)
def test_a_run_of_positions_is_spread_over_all_samples(
    samples: int, where: float, seed: int
) -> None:
    run = run_of(samples, where, seed)
    counts = np.bincount((run * 50 // samples).astype(int), minlength=50)
    assert chi_square(counts, LENGTH / 50) < 7
    for bit in range(int(samples).bit_length() - 6):  # the highest ones are not even
        ones = int((run.astype(np.uint64) >> np.uint64(bit) & np.uint64(1)).sum())
        assert abs(ones - LENGTH / 2) < 6 * LENGTH**0.5


@settings(max_examples=50)
@given(**ANYWHERE)
def test_neighbours_and_epochs_know_nothing_of_each_other(
    samples: int, where: float, seed: int
) -> None:
    run, next_epoch = run_of(samples, where, seed), run_of(samples, where, seed, epoch=1)
    for one, other in ((run[1:], run[:-1]), (run, next_epoch), (run[2:], run[:-2])):
        cells = (one * 8 // samples).astype(int) * 8 + (other * 8 // samples).astype(int)
        assert chi_square(np.bincount(cells, minlength=64), len(cells) / 64) < 7
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / LENGTH**0.5


def test_a_run_resumes_at_once_in_a_million_million_samples() -> None:
    Batches(Shuffled(10**6, seed=0), 512, 1, workers=1, rank=0).indices(0)  # numpy's own first use

    def first_indices() -> list[int]:
        batches = Batches(
            Shuffled(10**12, seed=1),
            batch=512,
            steps=10**12 // 512,
            workers=8,
            rank=3,
            first_step=10**11 // 512,
        )
        return next(iter(batches))

    begin = time.perf_counter()
    indices = first_indices()
    seconds = time.perf_counter() - begin
    tracemalloc.start()  # only now: it makes all ten times slower
    first_indices()
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.010
    assert most_bytes < 10**6
    assert len(set(indices)) == 64
    assert max(indices) < 10**12


def test_sequential_is_the_datasets_own() -> None:
    assert Sequential(10).at(3, range(2, 5)).tolist() == [2, 3, 4]
