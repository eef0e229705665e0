"""A mixture of datasets with fixed proportions, exact in every block and from any position."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from paceline.data.order import Indices, Order, mixed, seed_for
from paceline.data.order_choice import order_of
from paceline.data.randomness import draws_numbers, taken
from paceline.specs import PacelineError

_MOST = 10_000
"""Most positions in a block: starting in the middle of one sorts it."""


class Mixture(Dataset[Any]):
    """Datasets with weights: in `Mixture([(books, 3), (code, 1)])`, one of four samples is code.

    Each dataset has its own order and repeats when it is exhausted. The mixture is their
    concatenation; an epoch has as many samples as all of them together.
    """

    def __init__(self, sources: Sequence[tuple[Any, int]]) -> None:
        if not sources:
            raise PacelineError(
                "Mixture was given no dataset", fix="give pairs: Mixture([(books, 3), (code, 1)])"
            )
        for number, (source, share) in enumerate(sources):
            named = f"dataset {number} of the Mixture ({type(source).__name__})"
            if not isinstance(share, int) or share < 1:
                raise PacelineError(
                    f"the share of {named} is {share!r}",
                    fix="give integers of at least 1, such as 3 and 1 for 0.75 and 0.25",
                )
            if len(source) == 0:
                raise PacelineError(f"{named} is empty", fix="check its path, or leave it out")
        divisor = gcd(*(share for _, share in sources))
        self.sources = [source for source, _ in sources]
        self.shares = tuple(share // divisor for _, share in sources)
        if sum(self.shares) > _MOST:
            raise PacelineError(
                f"the shares of the Mixture sum to {sum(self.shares)}",
                fix=f"give coarser shares, with a sum of at most {_MOST}",
            )
        self._ends = np.cumsum([len(source) for source in self.sources])
        self.deterministic = not any(draws_numbers(source) for source in self.sources)
        self.read_ahead = sum(getattr(source, "read_ahead", 0) for source in self.sources)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Return the samples with these indices, in one request per dataset."""
        samples: list[Any] = [None] * len(indices)
        for number, places, inside in self._by_source(indices):
            for place, sample in zip(places, taken(self.sources[number], inside), strict=True):
                samples[place] = sample
        return samples

    def order(self, seed: int, shuffle: bool) -> Order:
        """Return the order that keeps the proportions."""
        orders = tuple(
            order_of(source, len(source), seed_for(seed, "source", number), shuffle)
            for number, source in enumerate(self.sources)
        )
        firsts = (0, *self._ends[:-1].tolist())
        return _Mixed(len(self), orders, firsts, self.shares, seed if shuffle else None)

    def shards_of(self, indices: list[int]) -> list[tuple[int, Any]]:
        """Return the shards of these samples, for the datasets that have shards."""
        return [
            (number, shard)
            for number, _, inside in self._by_source(indices)
            if getattr(self.sources[number], "read_ahead", 0)
            for shard in self.sources[number].shards_of(inside)
        ]

    def fetch(self, shard: tuple[int, Any]) -> None:
        """Fetch a shard to this node."""
        number, inside = shard
        self.sources[number].fetch(inside)

    def _by_source(self, indices: list[int]) -> list[tuple[int, list[int], list[int]]]:
        """Return, for each dataset: its number, the positions of its indices, and its own
        indices."""
        asked = np.asarray(indices)
        owners = np.searchsorted(self._ends, asked, side="right")
        parts = []
        for number in np.unique(owners).tolist():
            places = np.flatnonzero(owners == number)
            inside = asked[places] - (self._ends[number] - len(self.sources[number]))
            parts.append((number, places.tolist(), inside.tolist()))
        return parts


@dataclass(frozen=True)
class _Mixed:
    samples: int
    orders: tuple[Order, ...]
    firsts: tuple[int, ...]
    """Index of each dataset's first sample in the concatenation."""
    shares: tuple[int, ...]
    seed: int | None
    """Seed of the order inside blocks; None: the order of the datasets."""

    def at(self, epoch: int, positions: range) -> Indices:
        # Blocks are counted over all epochs, so that proportions are exact across epochs too.
        block = sum(self.shares)
        begin, end = (epoch * self.samples + edge for edge in (positions.start, positions.stop))
        first_block = begin // block
        owners = self._owners(first_block, -(-end // block))
        skipped, owners = np.split(owners[: end - first_block * block], [begin % block])
        indices = np.empty(len(positions), dtype=np.uint64)
        for number, share in enumerate(self.shares):
            start = first_block * share + int(np.count_nonzero(skipped == number))
            mine = owners == number
            indices[mine] = self._walk(number, start, int(np.count_nonzero(mine)))
        return indices

    def _owners(self, first_block: int, end_block: int) -> NDArray[np.intp]:
        """Return the dataset of each position in these blocks."""
        slots = np.repeat(np.arange(len(self.shares)), self.shares)
        if self.seed is None:
            return np.tile(slots, end_block - first_block)
        key = np.uint64(seed_for(self.seed, "blocks"))
        blocks: Indices = np.arange(first_block, end_block, dtype=np.uint64)
        places: Indices = np.arange(len(slots), dtype=np.uint64)
        numbers = mixed(np.add.outer(mixed(blocks ^ key), places))
        return slots[np.argsort(numbers, axis=1, kind="stable")].ravel()

    def _walk(self, number: int, start: int, count: int) -> Indices:
        """Return samples `start` to `start + count` of a dataset that repeats."""
        order = self.orders[number]
        parts = [np.empty(0, dtype=np.uint64)]
        while count:
            epoch, position = divmod(start, order.samples)
            length = min(count, order.samples - position)
            parts.append(order.at(epoch, range(position, position + length)))
            start, count = start + length, count - length
        return np.concatenate(parts) + np.uint64(self.firsts[number])
