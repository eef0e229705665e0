"""The sample order as a function: position -> sample, from a seed and an epoch.

A Feistel network over the next even power of two, repeated until the result is inside the data, is
a permutation that needs no memory and can start at any position.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.uint64]

_ROUNDS = 6


class Order(Protocol):
    """A sample order: a function from position to sample, the same on every worker."""

    @property
    def samples(self) -> int:
        """Samples per epoch."""

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions`, a range with step 1, of an epoch."""


@dataclass(frozen=True)
class Shuffled:
    """A keyed permutation of `range(samples)`."""

    samples: int
    seed: int

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions` of an epoch."""
        values = np.arange(positions.start, positions.stop, positions.step, dtype=np.uint64)
        half_bits = max(1, ((self.samples - 1).bit_length() + 1) // 2)
        keys = self._round_keys(epoch)
        values = _permute(values, half_bits, keys)
        # The network permutes up to four times as many values as there are samples: results outside
        # are permuted again until they fall inside, which keeps it a permutation.
        outside = np.flatnonzero(values >= self.samples)
        while outside.size:
            values[outside] = _permute(values[outside], half_bits, keys)
            outside = outside[values[outside] >= self.samples]
        return values

    def _round_keys(self, epoch: int) -> Indices:
        digest = hashlib.blake2b(
            f"{self.seed}/{epoch}/{self.samples}".encode(), digest_size=8 * _ROUNDS
        ).digest()
        return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True)
class Sequential:
    """The dataset's own order, the same in every epoch."""

    samples: int

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions` of an epoch."""
        del epoch
        return np.arange(positions.start, positions.stop, positions.step, dtype=np.uint64)


@dataclass(frozen=True)
class Reshuffled:
    """An order up to a position, and the samples after it in another order.

    The epoch that the position lies in has the same samples, so each still comes once: those after
    the position are shuffled anew. Later epochs have the other order.
    """

    before: Order
    after: Order
    position: int
    """Samples before the change, counted over all epochs."""
    seed: int

    @property
    def samples(self) -> int:
        """Samples per epoch."""
        return self.before.samples

    def at(self, epoch: int, positions: range) -> Indices:
        """Return the samples at `positions` of an epoch."""
        changed, offset = divmod(self.position, self.samples)
        if epoch < changed or (epoch == changed and positions.stop <= offset):
            return self.before.at(epoch, positions)
        if epoch > changed or not offset:
            return self.after.at(epoch, positions)
        shuffled = Shuffled(len(self._rest), self.seed)
        rest = range(max(positions.start, offset) - offset, positions.stop - offset)
        found = self._rest[shuffled.at(epoch, rest)]
        if positions.start >= offset:
            return found
        known = self.before.at(epoch, range(positions.start, offset))
        return np.concatenate([known, found])

    @cached_property
    def _rest(self) -> Indices:
        """The samples after the position in its epoch, 8 bytes each: orders answer for ranges."""
        epoch, offset = divmod(self.position, self.samples)
        return self.before.at(epoch, range(offset, self.samples))


def seed_for(seed: int, *names: object) -> int:
    """Return a seed derived for a named purpose."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fingerprint(order: Order) -> int:
    """Return a number that distinguishes this order from others, such as that of another
    mixture."""
    few = range(min(order.samples, 64))
    text = ",".join(str(sample) for epoch in (0, 1) for sample in order.at(epoch, few).tolist())
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")


def _permute(values: Indices, half_bits: int, keys: Indices) -> Indices:
    shift = np.uint64(half_bits)
    mask = np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (mixed(right ^ key) & mask)
    return (left << shift) | right


def mixed(values: Indices) -> Indices:
    """SplitMix64's finalizer (Steele, Lea and Flood, 2014): each input bit affects each output
    bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
