"""Time of matrix products on a device: compute, tiles that leave units idle, memory, alignment."""

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.measured_kernels import MeasuredKernels
from paceline.plan.cost.kernels.product_sizes import ProductSizes, sizes_on_a_slice
from paceline.plan.cost.layout_table import Layouts
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Matmul

BACKWARD = 2.0
"""FLOPs and bytes of backward, relative to forward."""
TILES = ((256.0, 128.0, 1.0), (128.0, 128.0, 0.9), (128.0, 64.0, 0.8), (64.0, 64.0, 0.6))
"""Rows and columns of a product that one unit computes at a time, and the rate with such tiles,
relative to the largest: kernels of cuBLAS; the rates are assumed."""
SPLIT = 512.0
"""Least inner elements of a tile that several units share, each with its part of the sum."""
ALIGNED = 8
"""Elements of 16 bits to which tensor cores want the rows of a matrix aligned."""
LOW_PRECISION = ("fp8", "fp4")


class MatrixProducts:
    """Times of a device's matrix products in one precision."""

    def __init__(
        self, cluster: Cluster, precision: str, engine: Engine, numbers: Coefficients
    ) -> None:
        device = cluster.device
        self._numbers = numbers
        self._imbalance = engine.imbalance
        self._cast_bytes = engine.cast_bytes if precision in LOW_PRECISION else 0
        self._rate = device.matmul_rate(precision) * numbers.matmul_rate
        of_attention = "bf16" if precision in LOW_PRECISION else precision
        self._measured = MeasuredKernels(cluster, precision, of_attention)
        self._attention_rate = device.matmul_rate(of_attention) * numbers.matmul_rate
        # A CPU's kernels divide the work of a product as finely as its cores need.
        self._units = device.units if device.kind != "cpu" else None
        self.memory_rate = device.memory_bytes_per_second * numbers.memory_rate
        """Memory rate of the operations between matrix products, in bytes per second."""

    def seconds(self, matmul: Matmul, layouts: Layouts, fused: bool) -> tuple[Array, Array]:
        """Return the seconds of a product in forward and of its two products in backward.

        A measured time counts where there is one. Beyond the measured sizes, it is that of the
        nearest one, times the formula's ratio of the two.
        `fused`: it is part of a kernel for the whole core of attention.
        """
        sizes = self._sizes(matmul, layouts)
        forward, backward = self._computed(matmul, sizes, fused)
        measured = self._measured.times(matmul, sizes, fused)
        if measured is None:
            return forward, backward
        near, near_backward = self._computed(matmul, measured.nearest, fused)
        rate = self._numbers.matmul_rate
        return (
            np.asarray(measured.forward / rate * (forward / near)),
            np.asarray(measured.backward / rate * (backward / near_backward)),
        )

    def from_kernels(self, matmul: Matmul, layouts: Layouts, fused: bool) -> Array:
        """Return the seconds of forward and backward where they come from measured kernels of the
        product's own size; 0 elsewhere."""
        sizes = self._sizes(matmul, layouts)
        measured = self._measured.times(matmul, sizes, fused)
        if measured is None:
            return np.zeros_like(sizes.rows)
        seconds = (measured.forward + measured.backward) / self._numbers.matmul_rate
        return np.where(measured.inside, seconds, 0.0)

    def measures_core(self, fused: bool) -> bool:
        """Return whether the core of attention was measured, with all between its products."""
        return self._measured.has_core(fused)

    def _sizes(self, matmul: Matmul, layouts: Layouts) -> ProductSizes:
        sizes = sizes_on_a_slice(matmul, layouts)
        if matmul.routed and layouts.expert.ndim:
            return self._of_experts(matmul, layouts, sizes)
        return sizes

    def _computed(self, matmul: Matmul, sizes: ProductSizes, fused: bool) -> tuple[Array, Array]:
        """Return the seconds by formula."""
        if fused:
            flops = matmul.computed * sizes.flops(matmul.count)
            forward = flops / (self._attention_rate * self._numbers.attention_rate)
            return forward, BACKWARD * forward
        # The product, that of its inputs' gradients, and that of its weights' gradients.
        rows = np.stack([sizes.rows, sizes.rows, sizes.inner])
        inner = np.stack([sizes.inner, sizes.columns, sizes.rows])
        columns = np.stack([sizes.columns, sizes.inner, sizes.columns])
        every = ProductSizes(rows, inner, columns, sizes.repeats)
        flops = every.flops(matmul.count)
        read = rows * inner / matmul.reused + inner * columns
        moved = 2.0 * (read + rows * columns) * sizes.repeats * matmul.count
        if self._cast_bytes and not matmul.attention:
            moved = moved + self._cast_bytes * read
        idle = self._idle(matmul, every, flops)
        return (
            self._product(matmul, flops[0], idle[0], moved[0]),
            self._product(matmul, flops[1:].sum(0), idle[1:].sum(0), moved[1:].sum(0)),
        )

    def _of_experts(self, matmul: Matmul, layouts: Layouts, sliced: ProductSizes) -> ProductSizes:
        """Return the sizes on the busiest of the workers that divide the experts: fewer and whole
        experts, each with the tokens of all these workers."""
        divided = layouts.expert > 1
        tokens = matmul.rows * layouts.samples * layouts.expert / layouts.tensor
        return ProductSizes(
            rows=np.where(divided, self._imbalance * tokens, sliced.rows),
            inner=np.where(divided, matmul.inner, sliced.inner),
            columns=np.where(divided, matmul.columns, sliced.columns),
            repeats=np.where(divided, matmul.repeats / layouts.expert, sliced.repeats),
        )

    def _product(self, matmul: Matmul, flops: Array, idle: Array, moved: Array) -> Array:
        """Return the seconds of products with these FLOPs, those of idle units, and bytes."""
        numbers = self._numbers
        rate = self._attention_rate if matmul.attention else self._rate
        computing = (matmul.computed * flops + numbers.idle_units * idle) / rate
        if matmul.attention and min(matmul.inner, matmul.columns) % ALIGNED:
            computing = computing * numbers.unaligned_attention
        return np.asarray(computing + numbers.small_matmul * moved / self.memory_rate)

    def _idle(self, matmul: Matmul, sizes: ProductSizes, flops: Array) -> Array:
        """Return the FLOPs that units without a tile, or with a part of one, could have done: the
        best of the tiles counts, as libraries choose."""
        if self._units is None:
            return np.zeros_like(flops)
        height, width, rate = (
            np.array(each)[:, np.newaxis, np.newaxis] for each in zip(*TILES, strict=True)
        )
        tiles = np.ceil(sizes.rows / height) * np.ceil(sizes.columns / width) * sizes.repeats
        most = np.maximum(sizes.inner / SPLIT, 1.0)
        parts = np.minimum(np.maximum(np.floor(self._units / tiles), 1.0), most)
        waves = np.ceil(tiles * parts / self._units) / parts
        area = np.min(waves * (self._units * height * width / rate), axis=0)
        return np.asarray(np.maximum(2.0 * matmul.count * sizes.inner * area - flops, 0.0))
