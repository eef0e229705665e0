"""Random numbers by sample: decoding depends on (seed, epoch, sample), not on the process.

Before a sample is decoded, the global generators of torch, numpy and Python are seeded for it, in
the process that decodes it. Their states are restored afterwards, so that the training's own random
numbers do not change.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch.utils.data import Dataset, TensorDataset

from paceline.data.order import seed_for

_key: ContextVar[int | None] = ContextVar("key", default=None)
"""Key of the epoch whose samples are being decoded."""

_numpy_scratch = np.random.MT19937()

_SPREAD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: keys of neighboring samples are far apart."""


def draws_numbers(data: Any) -> bool:
    """Return whether decoding may draw random numbers; datasets declare `deterministic` if not."""
    return not (isinstance(data, TensorDataset) or getattr(data, "deterministic", False))


def seed_sample(sample: int) -> None:
    """Seed the generators for a sample during training; datasets call it before decoding."""
    key = _key.get()
    if key is None:
        return
    number = (key + sample * _SPREAD) % 2**64
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number >> 32)


def taken(data: Any, indices: list[int]) -> list[Any]:
    """Return the samples with these indices, each decoded with its own random numbers.

    The dataset's `__getitems__` is used if it draws none or seeds each sample itself.
    """
    draws = draws_numbers(data)
    at_once = callable(getattr(data, "__getitems__", None))
    if at_once and (not draws or getattr(data, "seeds_each_sample", False)):
        samples: list[Any] = data.__getitems__(indices)
        return samples
    samples = []
    for index in indices:
        if draws:
            seed_sample(index)
        samples.append(data[index])
    return samples


@dataclass(frozen=True)
class Seeded(Dataset[Any]):
    """A dataset whose index is a pair `(epoch, indices)`, for data that may draw random numbers."""

    data: Any
    seed: int

    def __getitems__(self, asked: tuple[int, list[int]]) -> list[Any]:
        """Return the samples of an epoch with these indices."""
        epoch, indices = asked
        with _generators_kept():
            token = _key.set(seed_for(self.seed, "decoding", epoch))
            try:
                return taken(self.data, indices)
            finally:
                _key.reset(token)


@contextmanager
def _generators_kept() -> Iterator[None]:
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_generator = get_bit_generator()
    set_bit_generator(_numpy_scratch)  # much faster than copying its state twice
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        set_bit_generator(numpy_generator)
