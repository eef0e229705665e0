"""The base of datasets in shards: sample positions, sample order and open shards."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from paceline.data.order import Order, Sequential, Shuffled
from paceline.data.randomness import seed_sample
from paceline.data.shard_windows import Windowed
from paceline.specs import PacelineError

Decode = Callable[[Any], Any]


class Sharded(Dataset[Any], ABC):
    """A map-style dataset whose samples lie in shards; only a few are open at a time."""

    seeds_each_sample = True
    deterministic = False
    read_ahead = 0
    """Number of shards to prefetch."""

    def __init__(
        self, sizes: Sequence[int], *, window: int | None, decode: Decode | None = None
    ) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._ends = np.cumsum(self._sizes)
        self._window = window
        self._decode = decode
        self._opened: OrderedDict[int, Any] = OrderedDict()
        if not len(self):
            raise PacelineError(
                f"the {len(sizes)} shards of {type(self).__name__} hold no sample",
                fix="check the paths, and how the shards were written",
            )

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Return the samples with these indices, in one read per shard."""
        places: dict[int, list[int]] = {}
        for place, shard in enumerate(self._owners(indices)):
            places.setdefault(shard, []).append(place)
        samples: list[Any] = [None] * len(indices)
        for shard, its in places.items():
            first = int(self._ends[shard] - self._sizes[shard])
            rows = [indices[place] - first for place in its]
            for place, raw in zip(its, self._read(self._open(shard), rows), strict=True):
                samples[place] = self._decoded(indices[place], raw)
        return samples

    def order(self, seed: int, shuffle: bool) -> Order:
        """Return the order: if shuffled, a few shards at a time, so that each is read once per
        epoch."""
        if not shuffle:
            return Sequential(len(self))
        if self._window is None:
            return Shuffled(len(self), seed)
        return Windowed(self._sizes, seed, self._window)

    def shards_of(self, indices: list[int]) -> list[int]:
        """Return the shards of these samples, in the order of their first use."""
        return list(dict.fromkeys(self._owners(indices)))

    @abstractmethod
    def fetch(self, shard: int) -> None:
        """Fetch a shard to this node, unless another process is fetching it."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for loader processes: each process opens shards itself."""
        return self.__dict__ | {"_opened": OrderedDict()}

    @abstractmethod
    def _load(self, shard: int) -> Any:
        """Open a shard; the result must not depend on an open file's position."""

    @abstractmethod
    def _read(self, opened: Any, rows: list[int]) -> Sequence[Any]:
        """Return the undecoded samples in these rows of a shard."""

    def _decoded(self, index: int, raw: Any) -> Any:
        if self._decode is None:
            return raw
        seed_sample(index)
        return self._decode(raw)

    def _owners(self, indices: list[int]) -> list[int]:
        owners: list[int] = np.searchsorted(self._ends, indices, side="right").tolist()
        return owners

    def _open(self, shard: int) -> Any:
        if shard not in self._opened:
            # A batch requests shards in the order of its samples, so the next window's shards evict
            # those of the previous window and none of their own.
            while len(self._opened) >= (self._window or len(self._sizes)):
                self._opened.popitem(last=False)
            self._opened[shard] = self._load(shard)
        self._opened.move_to_end(shard)
        return self._opened[shard]
