"""Windows of shards: a permutation of all samples, and few shards at a time."""

import time
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.shard_windows import Windowed
from paceline.specs import PacelineError

pytestmark = pytest.mark.alone

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any)


@given(sizes=SIZES, window=st.integers(1, 50), seed=st.integers(0, 2**63), epoch=st.integers(0, 99))
def test_a_permutation(sizes: list[int], window: int, seed: int, epoch: int) -> None:
    order = Windowed(sizes, seed, window)
    samples = order.at(epoch, range(order.samples)).tolist()
    assert sorted(samples) == list(range(sum(sizes)))


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    window=st.integers(1, 9),
    seed=st.integers(0, 2**63),
)
def test_a_window_has_only_its_shards(sizes: list[int], window: int, seed: int) -> None:
    order = Windowed(sizes, seed, window)
    samples = order.at(0, range(order.samples))
    shards = np.searchsorted(list(accumulate(sizes)), samples, side="right").tolist()
    while shards:
        current = list(dict.fromkeys(shards))[:window]
        together = sum(sizes[shard] for shard in current)
        assert set(shards[:together]) == set(current)
        shards = shards[together:]


@given(sizes=SIZES, window=st.integers(1, 9), begin=st.integers(0, 999), length=st.integers(0, 99))
def test_it_starts_anywhere(sizes: list[int], window: int, begin: int, length: int) -> None:
    order = Windowed(sizes, seed=5, window=window)
    begin = min(begin, order.samples)
    part = range(begin, min(begin + length, order.samples))
    whole = order.at(2, range(order.samples))
    assert order.at(2, part).tolist() == whole[part.start : part.stop].tolist()


def test_epochs_and_seeds_differ() -> None:
    orders = [
        Windowed([100] * 20, seed, window=4).at(epoch, range(2000))
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    for index, one in enumerate(orders):
        for other in orders[index + 1 :]:
            assert (one == other).mean() < 0.02


def test_a_million_shards_start_within_a_second() -> None:
    sizes = np.full(10**6, 10_000)
    begin = time.perf_counter()
    order = Windowed(sizes, seed=1, window=16)
    part = order.at(3, range(7 * 10**9, 7 * 10**9 + 512))
    assert time.perf_counter() - begin < 1.0
    assert len(set((part // 10_000).tolist())) <= 16
    begin = time.perf_counter()
    order.at(3, range(8 * 10**9, 8 * 10**9 + 512))
    assert time.perf_counter() - begin < 0.02


def test_a_window_holds_a_shard() -> None:
    with pytest.raises(PacelineError, match="a window of 0 shards"):
        Windowed([1], seed=0, window=0)
