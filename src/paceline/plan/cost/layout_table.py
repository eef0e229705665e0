"""Many layouts at once, as arrays: what the planner computes with."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from paceline.cluster.collectives import Array
from paceline.specs.measurements.profile import TrainingPrecision
from paceline.specs.plans.layout import Layout

RECOMPUTE = ("none", "selective", "attention", "block")
"""By its number in `Layouts.recompute`. Selective is Paceline's and torchtitan's: all but matrix
products and attention; `attention` is Megatron's: the core of attention only."""
Index = npt.NDArray[np.intp]
TWICE_AROUND = 2.0


@dataclass(frozen=True)
class Layouts:
    """One number of each for every layout; the names are those of `Layout`."""

    replicas: Array
    shards: Array
    tensor: Array
    pipeline: Array
    micro_batch: Array
    recompute: Array
    """A number into `RECOMPUTE`."""
    chunks: Array
    """Stages on every worker of a pipeline; above 1 it is interleaved."""
    sequence: Array
    """1 where what lies between sliced layers is divided along the sequence."""
    reshard: Array
    """1 where shards free gathered weights after forward and gather them again for backward."""
    optimizer_shards: Array
    """1 where replicas divide the optimizer's state (ZeRO-1, Megatron's distributed optimizer):
    published runs do, Paceline's replicas do not."""

    @property
    def data_workers(self) -> Array:
        """Parts that a global batch is divided into."""
        return self.replicas * self.shards

    @property
    def devices(self) -> Array:
        """That each layout needs."""
        return self.data_workers * self.tensor * self.pipeline

    def __len__(self) -> int:
        return len(self.replicas)

    def micro_batches(self, batch: Array | float) -> Array:
        """Of a step of `batch` samples, on every worker."""
        return np.asarray(np.ceil(batch / (self.data_workers * self.micro_batch)))

    def blocks(self, count: int) -> Array:
        """Of a worker in the middle of a pipeline, where the model has `count`."""
        return np.asarray(np.ceil(count / (self.pipeline * self.chunks)) * self.chunks)

    def take(self, index: Index) -> "Layouts":
        """Those of that index."""
        return Layouts(*(getattr(self, each.name)[index] for each in fields(self)))

    def alike_on_a_device(self) -> tuple["Layouts", Index]:
        """Those that differ in what one device computes, and which of them each layout is."""
        key = self.recompute + 4.0 * (
            self.sequence + 2.0 * (self.tensor + 2.0**20 * self.micro_batch)
        )
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return self.take(first), place

    @classmethod
    def of(cls, layouts: Sequence[Layout], micro_batch: int = 1) -> "Layouts":
        """Paceline's own; `micro_batch` stands in where a layout leaves it open."""
        columns = [
            (
                each.replicas,
                each.shards,
                each.tensor,
                each.pipeline,
                each.micro_batch or micro_batch,
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
        """One of them, as Paceline runs it."""
        recompute = RECOMPUTE[int(self.recompute[index])]
        return Layout(
            replicas=int(self.replicas[index]),
            shards=int(self.shards[index]),
            tensor=int(self.tensor[index]),
            pipeline=int(self.pipeline[index]),
            micro_batch=int(self.micro_batch[index]),
            recompute="selective" if recompute == "attention" else recompute,
            schedule="interleaved" if self.chunks[index] == TWICE_AROUND else "1f1b",
            sequence=bool(self.sequence[index]),
            reshard=bool(self.reshard[index]),
            precision=precision,
        )
