"""Time of matrix products on a device: compute, tiles that leave units idle, memory, alignment."""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
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


@dataclass(frozen=True)
class _Sizes:
    """A product of a layout's slice: rows x inner by inner x columns, several times."""

    rows: Array
    inner: Array
    columns: Array
    repeats: Array


class MatrixProducts:
    """Times of a device's matrix products in one precision."""

    def __init__(
        self, cluster: Cluster, precision: str, engine: Engine, numbers: Coefficients
    ) -> None:
        device = cluster.device
        self._numbers = numbers
        self._cast_bytes = engine.cast_bytes if precision in LOW_PRECISION else 0
        self._rate = device.matmul_rate(precision) * numbers.matmul_rate
        of_attention = "bf16" if precision in LOW_PRECISION else precision
        self._attention_rate = device.matmul_rate(of_attention) * numbers.matmul_rate
        # A CPU's kernels divide the work of a product as finely as its cores need.
        self._units = device.units if device.kind != "cpu" else None
        self.memory_rate = device.memory_bytes_per_second * numbers.memory_rate
        """Memory rate of the operations between matrix products, in bytes per second."""

    def seconds(self, matmul: Matmul, layouts: Layouts, fused: bool) -> tuple[Array, Array]:
        """Return the seconds of a product in forward and of its two products in backward.

        `fused`: it is part of a kernel for the whole core of attention.
        """
        sizes = _sizes(matmul, layouts)
        if fused:
            flops = matmul.computed * _flops(matmul, sizes)
            forward = flops / (self._attention_rate * self._numbers.attention_rate)
            return forward, BACKWARD * forward
        rows, inner, columns, repeats = sizes.rows, sizes.inner, sizes.columns, sizes.repeats
        of_inputs = _Sizes(rows, columns, inner, repeats)
        of_weights = _Sizes(inner, rows, columns, repeats)
        return (
            self._product(matmul, sizes),
            self._product(matmul, of_inputs) + self._product(matmul, of_weights),
        )

    def _product(self, matmul: Matmul, sizes: _Sizes) -> Array:
        numbers = self._numbers
        flops = _flops(matmul, sizes)
        read = sizes.rows * sizes.inner / matmul.reused + sizes.inner * sizes.columns
        moved = 2.0 * (read + sizes.rows * sizes.columns) * sizes.repeats * matmul.count
        rate = self._attention_rate if matmul.attention else self._rate
        computing = (
            matmul.computed * flops + numbers.idle_units * self._idle(matmul, sizes)
        ) / rate
        if matmul.attention:
            if min(matmul.inner, matmul.columns) % ALIGNED:
                computing = computing * numbers.unaligned_attention
        elif self._cast_bytes:
            moved = moved + self._cast_bytes * read
        return np.asarray(computing + numbers.small_matmul * moved / self.memory_rate)

    def _idle(self, matmul: Matmul, sizes: _Sizes) -> Array:
        """Return the FLOPs that units without a tile, or with a part of one, could have done: the
        best of the tiles counts, as libraries choose."""
        if self._units is None:
            return np.zeros_like(sizes.rows)
        areas = []
        for height, width, rate in TILES:
            tiles = np.ceil(sizes.rows / height) * np.ceil(sizes.columns / width) * sizes.repeats
            parts = np.clip(
                np.floor(self._units / tiles), 1.0, np.maximum(sizes.inner / SPLIT, 1.0)
            )
            waves = np.ceil(tiles * parts / self._units) / parts
            areas.append(waves * (self._units * height * width / rate))
        busy = 2.0 * matmul.count * sizes.inner * np.minimum.reduce(areas)
        return np.asarray(np.maximum(busy - _flops(matmul, sizes), 0.0))


def _sizes(matmul: Matmul, layouts: Layouts) -> _Sizes:
    """Return the sizes of a product on one slice, for one micro-batch."""

    def slices(of: str) -> Array | float:
        return layouts.tensor if matmul.sliced == of else 1.0

    one = np.ones_like(layouts.tensor)
    samples = layouts.micro_batch
    return _Sizes(
        rows=matmul.rows * (one if matmul.each_sample else samples),
        inner=matmul.inner * one / slices("inner"),
        columns=matmul.columns * one / slices("columns"),
        repeats=matmul.repeats * (samples if matmul.each_sample else one) / slices("repeats"),
    )


def _flops(matmul: Matmul, sizes: _Sizes) -> Array:
    """Return the FLOPs, also of what a mask skips."""
    return 2.0 * matmul.count * sizes.rows * sizes.inner * sizes.columns * sizes.repeats
