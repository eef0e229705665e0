"""What one layer takes for one micro-batch on one device: products, bytes moved, launches, sums."""

from dataclasses import dataclass, fields

import numpy as np

from paceline.cluster.collectives import COLLECTIVES, Array
from paceline.plan.engine import Engine
from paceline.plan.groups import group_of
from paceline.plan.layouts import RECOMPUTE, Index, Layouts
from paceline.plan.numbers import Numbers
from paceline.specs.cluster import Cluster
from paceline.specs.profile import LayerCost, Matmul

BACKWARD = 2.0
"""Products and bytes of backward, by those of forward."""
BACKWARD_LAUNCHES = 1.5
"""Operations that the host launches in backward, by those of forward: autograd's are lighter."""
TILE = 128.0 * 128.0
"""Elements of a product that one unit computes at a time."""
UNHIDDEN = 0.25
"""Of sums over slices, what remains although they are overlapped: the first and the last part."""
COMPILED = 0.5
"""Bytes and operations between matrix products that a compiler leaves."""
LOW_PRECISION = ("fp8", "fp4")
CAST_BYTES = 3.0
"""Read and written to bring an element into such a precision."""


@dataclass(frozen=True)
class Passes:
    """Seconds of one layer for one micro-batch."""

    forward: Array
    backward: Array
    again: Array
    tensor: Array

    all: Array
    """Together."""

    def take(self, place: Index) -> "Passes":
        """Of those layouts."""
        return Passes(*(getattr(self, each.name)[..., place] for each in fields(self)))


class Compute:
    """A device with its host and its neighbours."""

    def __init__(self, cluster: Cluster, precision: str, engine: Engine, numbers: Numbers) -> None:
        self._cluster = cluster
        self._engine = engine
        self._numbers = numbers
        device = cluster.device
        efficiency = device.matmul_efficiency * device.sustained * numbers.matmul_rate
        self._low = precision in LOW_PRECISION
        self._rate = device.peak(precision) * efficiency
        self._attention_rate = device.peak("bf16" if self._low else precision) * efficiency
        self.memory_rate = device.memory_bytes_per_second * numbers.memory_rate
        """Bytes per second between matrix products."""

    def passes(self, layer: LayerCost, layouts: Layouts) -> Passes:
        """Of one layer for one micro-batch."""
        numbers = self._numbers
        products = [each for each in layer.matmuls if not each.attention]
        core = self._moved(layer.moved_bytes_attention / layouts.tensor, layouts)
        for each in layer.matmuls:
            if each.attention:
                core = core + self._matmul(each, layouts, fused=not layer.moved_bytes_attention)
        whole = np.where(layouts.sequence > 0, layouts.tensor, 1.0)
        between = self._moved(
            layer.moved_bytes / layouts.tensor + layer.moved_bytes_whole / whole, layouts
        )
        rest = between
        for each in products:
            rest = rest + self._matmul(each, layouts, fused=False)
        fused = COMPILED if self._engine.compiled else 1.0
        launches = fused * layer.kernels * numbers.launch_seconds
        busy = core + rest
        repeated = layouts.recompute if layer.repeated else 0.0 * layouts.recompute
        block = repeated == RECOMPUTE.index("block")
        forward = _later(busy, launches)
        backward = _later(BACKWARD * busy, BACKWARD_LAUNCHES * launches)
        some = np.where(repeated == RECOMPUTE.index("attention"), core, between)
        again = np.where(block, forward, np.where(repeated > 0, some, 0.0))
        if not layer.reductions:
            return Passes(
                forward, backward, again, np.zeros_like(forward), forward + backward + again
            )
        sums = self._sums(layer, layouts, busy)
        # Sums run on the device: they cost nothing while it would wait for the host.
        forward_sums = _later(busy + sums, launches) - forward
        backward_sums = _later(BACKWARD * busy + sums, BACKWARD_LAUNCHES * launches) - backward
        tensor = forward_sums * (1.0 + block) + backward_sums
        return Passes(forward, backward, again, tensor, forward + backward + again + tensor)

    def _sums(self, layer: LayerCost, layouts: Layouts, busy: Array) -> Array:
        """Over the slices of a layer, in forward."""
        group = group_of(self._cluster, self._numbers, layouts.tensor, 1.0)
        nbytes = layer.output_bytes * layouts.micro_batch
        sums = layer.reductions * COLLECTIVES["all-reduce"](nbytes, group)
        if self._engine.overlap_tensor:
            sums = np.maximum(sums - self._numbers.overlap * busy, UNHIDDEN * sums)
        return sums

    def _matmul(self, matmul: Matmul, layouts: Layouts, fused: bool) -> Array:
        """Computing, reading and writing, and the units that have no tile to work on."""
        numbers = self._numbers
        inner = matmul.inner / (layouts.tensor if matmul.sliced == "inner" else 1.0)
        columns = matmul.columns / (layouts.tensor if matmul.sliced == "columns" else 1.0)
        repeats = matmul.repeats / (layouts.tensor if matmul.sliced == "repeats" else 1.0)
        rows = matmul.rows * (1.0 if matmul.each_sample else layouts.micro_batch)
        repeats = matmul.count * repeats * (layouts.micro_batch if matmul.each_sample else 1.0)
        flops = 2.0 * matmul.computed * rows * inner * columns * repeats
        if fused:
            return flops / (self._attention_rate * numbers.attention_rate)
        rate = self._attention_rate if matmul.attention else self._rate
        moved = 2.0 * (rows * inner + inner * columns + rows * columns) * repeats
        if self._low and not matmul.attention:
            moved = moved + CAST_BYTES * (rows * inner + inner * columns)
        idle = (
            matmul.count * numbers.unfilled_units * self._cluster.device.units * TILE * 2.0 * inner
        )
        return (flops + idle) / rate + numbers.small_matmul * moved / self.memory_rate

    def _moved(self, nbytes: Array | float, layouts: Layouts) -> Array:
        fused = COMPILED if self._engine.compiled else 1.0
        return np.asarray(fused * nbytes * layouts.micro_batch / self.memory_rate)


def _later(device: Array, host: Array) -> Array:
    """The later of the two, with a soft corner: parts of a block wait for one or the other."""
    both = np.square(np.square(device)) + np.square(np.square(host))
    return np.asarray(np.sqrt(np.sqrt(both)))
