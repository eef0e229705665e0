"""The sample order of a training: its own hook's, its dataset's, or Paceline's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.data.order import Indices, Order, Sequential, Shuffled
from paceline.specs import PacelineError


def order_of(
    data: Any, samples: int, seed: int, shuffle: bool, hook: Callable[[int], Order] | None = None
) -> Order:
    """Return the sample order: the hook's, else the dataset's, else Paceline's."""
    if hook is not None:
        return _checked(hook(seed), "Training(order=…)", samples)
    if callable(getattr(data, "order", None)):
        return _checked(data.order(seed, shuffle), f"{type(data).__name__}.order", samples)
    return Shuffled(samples, seed) if shuffle else Sequential(samples)


def _checked(order: Any, giver: str, samples: int) -> Order:
    if not (callable(getattr(order, "at", None)) and isinstance(order.samples, int)):
        raise PacelineError(
            f"{giver} returned a {type(order).__name__}, not a sample order",
            fix="return an object with `samples` and `at(epoch, positions)`, such as"
            " paceline.data.Shuffled(samples, seed)",
        )
    if order.samples < 1:
        raise PacelineError(
            f"{giver} returned a sample order of {order.samples} samples",
            fix="return an order of at least one sample",
        )
    return _Checked(order, giver, samples)


@dataclass(frozen=True)
class _Checked:
    """A user's sample order; every result is checked, which costs microseconds."""

    order: Order
    giver: str
    available: int

    @property
    def samples(self) -> int:
        return self.order.samples

    def at(self, epoch: int, positions: range) -> Indices:
        indices = np.asarray(self.order.at(epoch, positions))
        asked = f"{self.giver}, asked for positions {positions.start} to {positions.stop - 1}"
        if indices.shape != (len(positions),) or indices.dtype.kind not in "iu":
            raise PacelineError(
                f"{asked}, returned an array of {indices.dtype} with the shape {indices.shape}",
                fix=f"return a flat array of {len(positions)} integers, one per position",
            )
        if indices.size and not (indices.min() >= 0 and indices.max() < self.available):
            wrong = indices[(indices < 0) | (indices >= self.available)][0]
            raise PacelineError(
                f"{asked}, returned sample {wrong}, but the dataset has {self.available}",
                fix=f"return numbers from 0 to {self.available - 1}",
            )
        return indices.astype(np.uint64, copy=False)
