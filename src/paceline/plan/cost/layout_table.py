"""A table of layouts as arrays, for the cost model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.cluster.collectives import Array
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.layout import Layout

RECOMPUTE = ("none", "selective", "attention", "block")
"""Modes by their index in `Layouts.recompute`. `selective` is Paceline's and torchtitan's: all
but matrix products and attention; `attention` is Megatron's: only the core of attention."""
Index = npt.NDArray[np.intp]
_ONE = np.ones(())
_WITHIN_DEGREES = ("micro_batch", "recompute", "sequence")


@dataclass(frozen=True)
class Layouts:
    """One entry per layout in each field; the names are those of `Layout`.

    Context-parallel workers count among the shards, or among the replicas where there are none:
    they hold weights and share gradients as those do.
    """

    replicas: Array
    shards: Array
    tensor: Array
    pipeline: Array
    micro_batch: Array
    recompute: Array
    """Index into `RECOMPUTE`."""
    chunks: Array
    """Stages per worker of a pipeline; interleaved if above 1."""
    sequence: Array
    """1 if activations between sliced layers are divided along the sequence."""
    reshard: Array
    """1 if shards free gathered weights after forward and gather them again for backward."""
    optimizer_shards: Array
    """1 if replicas divide the optimizer state (ZeRO-1, Megatron's distributed optimizer):
    published runs do, Paceline's replicas do not."""
    context: Array = field(default_factory=lambda: _ONE)
    """Workers that divide the tokens of a sample; a single number if it is 1 in all layouts."""
    expert: Array = field(default_factory=lambda: _ONE)
    """Workers that divide the experts among them, of those with the same stage; 1: every slice
    holds its part of all experts. A single number if it is 1 in all layouts."""

    @property
    def stage_workers(self) -> Array:
        """Workers with the same stage and slice, which share its gradients."""
        return self.replicas * self.shards

    @property
    def data_workers(self) -> Array:
        """Number of data-parallel ranks that share a global batch."""
        return self.stage_workers / self.context if self.context.ndim else self.stage_workers

    @property
    def samples(self) -> Array:
        """Samples of a micro-batch by their tokens on one worker."""
        return self.micro_batch / self.context if self.context.ndim else self.micro_batch

    @property
    def devices(self) -> Array:
        """Devices that each layout needs."""
        return self.stage_workers * self.tensor * self.pipeline

    def __len__(self) -> int:
        return len(self.replicas)

    def micro_batches(self, batch: Array | float) -> Array:
        """Return the micro-batches of each worker in a step of `batch` samples."""
        return np.asarray(np.ceil(batch / (self.data_workers * self.micro_batch)))

    def blocks(self, count: int) -> Array:
        """Return the blocks of a worker in the middle of the pipeline, for a model of `count`
        blocks."""
        return np.asarray(np.ceil(count / (self.pipeline * self.chunks)) * self.chunks)

    def take(self, index: Index) -> "Layouts":
        """Return the layouts at an index."""
        columns = (getattr(self, each.name) for each in fields(self))
        return Layouts(*(each[index] if each.ndim else each for each in columns))

    def alike_on_a_device(self) -> tuple["Layouts", Index]:
        """Return one layout for each distinct compute cost of a device, and each layout's index
        in them."""
        key: npt.NDArray[np.inexact[Any]] = self.recompute + 4.0 * (
            self.sequence + 2.0 * (self.tensor + 2.0**20 * self.micro_batch)
        )
        if self.context.ndim or self.expert.ndim:
            key = key + 1j * (self.context + 2.0**20 * self.expert)
        found, place = np.unique(key, return_inverse=True)
        one = np.empty(len(found), dtype=np.intp)
        one[place] = np.arange(len(place))
        return self.take(one), place

    @cached_property
    def alike_in_degrees(self) -> tuple["Layouts", Index]:
        """One layout for each run of neighbors that differ only in the micro-batch, recomputation
        and sequence parallelism, and each layout's index in them.

        A table of all layouts has few such runs, and its collectives depend only on them.
        """
        begins = np.zeros(len(self), dtype=np.bool_)
        for each in fields(self):
            if each.name not in _WITHIN_DEGREES:
                column = getattr(self, each.name)
                if column.ndim:
                    begins[1:] |= column[1:] != column[:-1]
        begins[:1] = True
        return self.take(np.flatnonzero(begins)), np.cumsum(begins) - 1

    @classmethod
    def of(cls, layouts: Sequence[Layout], batch: float) -> "Layouts":
        """Return Paceline layouts as a table; unset micro-batches are those into which Paceline
        divides a global batch of `batch` samples."""
        columns = [
            (
                each.replicas,
                each.shards,
                each.tensor,
                each.pipeline,
                each.micro_batch or _divided(each, batch),
                RECOMPUTE.index(each.recompute),
                each.stages // each.pipeline if each.pipeline > 1 else 1,
                each.sequence,
                each.reshard,
                False,
            )
            for each in layouts
        ]
        return cls(*np.array(columns, dtype=np.float64).T)

    def layout(self, index: int, precision: TrainingPrecision) -> Layout:
        """Return one layout, as Paceline runs it."""
        recompute = RECOMPUTE[int(self.recompute[index])]
        context, expert = (
            int(np.broadcast_to(each, len(self))[index]) for each in (self.context, self.expert)
        )
        replicas, shards = int(self.replicas[index]), int(self.shards[index])
        return Layout(
            replicas=replicas if shards > 1 else replicas // context,
            shards=shards // context if shards > 1 else 1,
            context=context,
            expert=expert,
            tensor=int(self.tensor[index]),
            pipeline=int(self.pipeline[index]),
            micro_batch=int(self.micro_batch[index]),
            recompute="selective" if recompute == "attention" else recompute,
            schedule="interleaved" if self.chunks[index] > 1 else "1f1b",
            sequence=bool(self.sequence[index]),
            reshard=bool(self.reshard[index]),
            precision=precision,
        )


def _divided(layout: Layout, batch: float) -> int:
    local = math.ceil(batch / layout.data_workers)
    return math.ceil(local / layout.micro_batches(local))
