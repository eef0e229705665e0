"""Mixtures: exact shares in every block, every source walked whole, from any position on."""

from collections import Counter
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from paceline.data.batches import Batches
from paceline.data.collation.form import BatchForm
from paceline.data.loader import load
from paceline.data.mixtures import Mixture
from paceline.data.order_choice import order_of
from paceline.specs import PacelineError

SOURCES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 6)), min_size=1, max_size=5)


def mixture(sources: list[tuple[int, int]]) -> Mixture:
    return Mixture([(range(length), share) for length, share in sources])


def walked(mixed: Mixture, epochs: int, *, shuffle: bool = True, seed: int = 3) -> list[int]:
    order = mixed.order(seed, shuffle)
    return [i for epoch in range(epochs) for i in order.at(epoch, range(order.samples)).tolist()]


@given(sources=SOURCES, seed=st.integers(0, 2**63), shuffle=st.booleans())
def test_every_block_has_the_shares_and_every_source_is_walked_whole(
    sources: list[tuple[int, int]], seed: int, shuffle: bool
) -> None:
    mixed = mixture(sources)
    indices = walked(mixed, epochs=4, shuffle=shuffle, seed=seed)
    ends = list(accumulate(length for length, _ in sources))
    owners = np.searchsorted(ends, indices, side="right").tolist()
    block = sum(mixed.shares)
    for begin in range(0, len(indices) - block + 1, block):  # also across the edges of epochs
        counts = Counter(owners[begin : begin + block])
        assert tuple(counts[number] for number in range(len(sources))) == mixed.shares
    for number, (length, _) in enumerate(sources):
        own = [index for index, owner in zip(indices, owners, strict=True) if owner == number]
        for begin in range(0, len(own) - length + 1, length):
            passed = sorted(own[begin : begin + length])
            assert passed == list(range(ends[number] - length, ends[number]))


@given(sources=SOURCES, begin=st.integers(0, 199), length=st.integers(0, 99))
def test_it_starts_anywhere(sources: list[tuple[int, int]], begin: int, length: int) -> None:
    order = mixture(sources).order(seed=1, shuffle=True)
    begin = min(begin, order.samples)
    part = range(begin, min(begin + length, order.samples))
    whole = order.at(2, range(order.samples))
    assert order.at(2, part).tolist() == whole[part.start : part.stop].tolist()


def test_blocks_epochs_and_equal_sources_are_ordered_differently() -> None:
    mixed = mixture([(1000, 1), (1000, 1)])
    indices = np.asarray(walked(mixed, epochs=2))
    firsts = indices[::2] < 1000
    assert 0.4 < firsts.mean() < 0.6
    one, other = indices[indices < 1000][:1000], indices[indices >= 1000][:1000] - 1000
    assert (one == other).mean() < 0.02
    assert (indices[:2000] == indices[2000:]).mean() < 0.02


def test_shares_are_brought_to_lowest_terms() -> None:
    assert mixture([(5, 70), (5, 30)]).shares == (7, 3)


def test_a_trillion_samples_start_at_once() -> None:
    order = mixture([(10**12, 7), (10**9, 3)]).order(seed=1, shuffle=True)
    indices = order.at(5, range(10**11, 10**11 + 1000))
    assert int((indices >= 10**12).sum()) == 300


def test_samples_come_from_their_sources_in_a_loader() -> None:
    low, high = torch.arange(30.0), torch.arange(100.0, 110.0)
    mixed = Mixture([(TensorDataset(low, low), 3), (TensorDataset(high, high), 1)])
    order = order_of(mixed, len(mixed), seed=0, shuffle=True)
    batches = Batches(order, batch=8, steps=5, workers=1, rank=0)
    for batch in load(mixed, batches, torch.device("cpu"), BatchForm(), processes=0):
        assert int((batch.target >= 100).sum()) == 2
        assert [id_ if id_ < 30 else id_ + 70 for id_ in batch.ids] == batch.target.tolist()


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "given no dataset"),
        ([(range(3), 0)], r"share of dataset 0 of the Mixture \(range\) is 0"),
        ([(range(3), 1), (range(3), 0.5)], "share of dataset 1 .* is 0.5"),
        ([(range(3), 1), (range(0), 1)], r"dataset 1 of the Mixture \(range\) is empty"),
        ([(range(3), 9_999), (range(3), 2)], "the shares of the Mixture sum to 10001"),
    ],
)
def test_mistakes(sources: list[Any], message: str) -> None:
    with pytest.raises(PacelineError, match=message):
        Mixture(sources)
