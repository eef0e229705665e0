"""Synchronization of replicas and shards: collectives of gradients and weights, and the rounds of
modes other than PyTorch's all-reduce."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from paceline.cluster.collectives import COLLECTIVES, UNPROBED, Array, Group
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Index
from paceline.specs.plans.sync import SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart

_SECONDS = {**COLLECTIVES, **UNPROBED, "receive": COLLECTIVES["send"]}


UNHIDDEN_DATA = 0.1
"""Fraction of overlapped gradient communication that stays exposed: the last bucket."""
FIRST_BUCKET_BYTES = float(1 << 20)
"""Size of DDP's first bucket: small, so that communication begins early."""


@dataclass(frozen=True)
class GradientCollectives:
    """Seconds of the collectives of gradients and weights, before any of it overlaps."""

    gather: Array
    """Gathering the weights of all blocks of a worker from its shards."""
    scatter: Array
    """Reducing their gradients among the shards."""
    reduce: Array
    """Reducing gradients among the replicas."""
    reduced_bytes: Array
    """Bytes of those gradients on a worker."""
    back: Array | None = None
    """Gathering the weights from replicas that divide the optimizer state, if any do."""
    of_experts: Array | None = None
    """Reducing the gradients of experts that workers divide, beside `reduce`."""

    def take(self, place: Index) -> "GradientCollectives":
        """Return the entries of those layouts."""
        return GradientCollectives(
            gather=self.gather[..., place],
            scatter=self.scatter[..., place],
            reduce=self.reduce[..., place],
            reduced_bytes=self.reduced_bytes[..., place],
            back=None if self.back is None else self.back[..., place],
            of_experts=None if self.of_experts is None else self.of_experts[..., place],
        )

    def where(self, narrow: npt.NDArray[np.bool_], other: "GradientCollectives") -> Self:
        """Return these, with the gradients of `other` in the layouts of the mask."""
        experts = self.of_experts
        if experts is not None and other.of_experts is not None:
            experts = np.where(narrow, other.of_experts, experts)
        return replace(
            self,
            scatter=np.where(narrow, other.scatter, self.scatter),
            reduce=np.where(narrow, other.reduce, self.reduce),
            reduced_bytes=np.where(narrow, other.reduced_bytes, self.reduced_bytes),
            of_experts=experts,
        )

    def exposed_reduce(self, free: Array, overlap: Array, bucket_bytes: int | None) -> Array:
        """Return the exposed part of `reduce` after the backward that overlaps it.

        With buckets, it begins when the first one is full, and the last one follows the backward.
        """
        summed, nbytes = self.reduce, self.reduced_bytes
        if bucket_bytes is None:
            return np.maximum(summed - free, UNHIDDEN_DATA * overlap * summed)
        first = np.minimum(FIRST_BUCKET_BYTES, nbytes)
        rest = nbytes - first
        last = np.where(rest > 0, rest - bucket_bytes * (np.ceil(rest / bucket_bytes) - 1.0), first)
        waiting = 1.0 - first / np.maximum(nbytes, 1.0)
        return np.maximum(summed - free * waiting, summed * last / np.maximum(nbytes, 1.0))


@dataclass(frozen=True)
class Rounds:
    """Rounds of communication, for every layout."""

    seconds: Array
    """Duration of one round."""
    per_step: float
    overlapped_steps: int
    """Steps that a round may overlap."""


def rounds(
    engine: Engine,
    replicas: Array,
    parameters: Array,
    group: Group,
    memory_rate: Array,
    launch_seconds: Array,
) -> Rounds:
    """Return the rounds between `replicas` workers with `parameters` each, placed as `group`."""
    # Few layouts differ in these two.
    key, place = np.unique(replicas + 1j * np.round(parameters), return_inverse=True)
    bucket_bytes = engine.bucket_bytes or int(engine.gradient_bytes * np.max(parameters))
    cases = [
        engine.sync.traffic(ReplicatedPart(int(each.real), int(each.imag), bucket_bytes))
        for each in key
    ]
    copied, launches, crossing = (
        np.array([getattr(each, name) for each in cases])[place]
        for name in ("device_bytes", "launches", "crossing")
    )
    computing = np.maximum(copied / memory_rate, launches * launch_seconds)
    seconds = np.where(replicas > 1, computing, 0.0)
    # A mode makes the same calls on any number of workers.
    for calls in zip(*(each.transfers for each in cases), strict=True):
        count = np.array([float(each.count) for each in calls])[place]
        nbytes = np.array([float(each.bytes) for each in calls])[place]
        seconds = seconds + crossing * count * _SECONDS[calls[0].operation](nbytes, group)
    return Rounds(seconds, cases[0].per_step, cases[0].overlapped_steps)


def exposed(of: Rounds, step_seconds: Array) -> Array:
    """Return the exposed communication of a step that takes `step_seconds` without it.

    Rounds are sequential: if they take longer than the steps between them, they set the pace.
    """
    waiting = np.maximum(of.seconds - of.overlapped_steps * step_seconds, 0.0) * of.per_step
    return np.maximum(waiting, of.seconds * of.per_step - step_seconds)


def state_bytes(sync: SyncSettings, replicas: Array) -> Array:
    """Return the bytes that the mode keeps for each parameter that a worker holds."""
    return _by_number(replicas, sync.state_bytes)


def extra_samples(sync: SyncSettings, replicas: Array) -> Array:
    """Return the samples needed to reach the same loss, relative to plain all-reduce: assumed."""
    return _by_number(replicas, sync.extra_samples)


def _by_number(replicas: Array, of: Callable[[int], float]) -> Array:
    numbers, place = np.unique(replicas, return_inverse=True)
    return np.array([float(of(int(each))) for each in numbers])[place]
