"""The order of samples in shards: reads stay large, and it can start at any position.

The shards are permuted and grouped into windows of a few; the samples of a window are permuted
among themselves. A reader needs only the shards of one window at a time.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paceline.data.order import Indices, Shuffled, seed_for
from paceline.specs import PacelineError


class _EpochShards(NamedTuple):
    """The shards in the order of an epoch."""

    shards: Indices
    edges: Indices
    """Position of the first sample of each shard, and of the end."""


class Windowed:
    """A permutation of the samples of shards with these sizes, `window` shards at a time."""

    def __init__(self, sizes: ArrayLike, seed: int, window: int) -> None:
        if window < 1:
            raise PacelineError(
                f"a window of {window} shards holds no sample", fix="give a window of at least 1"
            )
        self._firsts = _edges(np.asarray(sizes, dtype=np.uint64))
        self._seed = seed
        self._window = window
        # Two, because prefetching reaches the next epoch before the training does.
        self._epoch_shards = lru_cache(maxsize=2)(self._shuffle_shards)

    @property
    def samples(self) -> int:
        """Samples in all shards."""
        return int(self._firsts[-1])

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions` of an epoch."""
        _, edges = self._epoch_shards(epoch)
        window_edges = np.append(edges[: -1 : self._window], edges[-1])
        number = int(np.searchsorted(window_edges, positions.start, side="right")) - 1
        parts = [np.empty(0, dtype=np.uint64)]
        begin = positions.start
        while begin < positions.stop:
            end = min(positions.stop, int(window_edges[number + 1]))
            parts.append(self._in_window(epoch, number, range(begin, end)))
            begin, number = end, number + 1
        return np.concatenate(parts)

    def _in_window(self, epoch: int, number: int, positions: range) -> Indices:
        shards, edges = self._epoch_shards(epoch)
        begin = number * self._window
        edges = edges[begin : begin + self._window + 1]
        offset = int(edges[0])
        inside = Shuffled(int(edges[-1]) - offset, seed_for(self._seed, "window", number))
        mixed = inside.at(epoch, range(positions.start - offset, positions.stop - offset))
        mixed += np.uint64(offset)
        which = np.searchsorted(edges, mixed, side="right") - 1
        return self._firsts[shards[begin + which]] + (mixed - edges[which])

    def _shuffle_shards(self, epoch: int) -> _EpochShards:
        count = len(self._firsts) - 1
        shards = Shuffled(count, seed_for(self._seed, "shards")).at(epoch, range(count))
        return _EpochShards(shards, _edges(np.diff(self._firsts)[shards]))


def _edges(sizes: Indices) -> Indices:
    return np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(sizes, dtype=np.uint64)])
