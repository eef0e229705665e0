"""Measured times of matrix products and attention, as far as a device's table has them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.cluster.collectives import Array
from paceline.cluster.kernels.grid_times import GridTimes, KernelSizes
from paceline.plan.cost.kernels.product_sizes import ProductSizes
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelTable, VariantName
from paceline.specs.measurements.profile import Matmul

FULL, LEAST = 64, 8
"""Multiples of which a width is aligned wholly, and at all."""


@dataclass(frozen=True)
class MeasuredTimes:
    """Seconds of a product at the nearest measured size, in forward and backward."""

    forward: Array
    backward: Array
    inside: npt.NDArray[np.bool_]
    """Whether the grid covers the product's own size."""
    nearest: ProductSizes
    """The sizes of the times; the product's own, where the grid covers them."""


class MeasuredKernels:
    """Measured times of a cluster's device in one precision."""

    def __init__(self, cluster: Cluster, precision: str, of_attention: str) -> None:
        table = cluster.kernels
        if table is None or table.source.device != cluster.device.name:
            self._grids: dict[tuple[str, str, bool, bool], GridTimes] = {}
        else:
            self._grids = _grids(table)
        self._precision, self._of_attention = precision, of_attention

    def times(self, matmul: Matmul, sizes: ProductSizes, fused: bool) -> MeasuredTimes | None:
        """Return the times of a product; None if no kernel like it was measured.

        `fused`: it is part of a kernel for the whole core of attention.
        """
        if not self._grids:
            return None
        return self._core(matmul, sizes, fused) if matmul.attention else self._layer(matmul, sizes)

    def has_core(self, fused: bool) -> bool:
        """Return whether attention was measured, with all that lies between its products."""
        return any(
            key[:2] == ("attention", self._of_attention) and key[3] == fused for key in self._grids
        )

    def _layer(self, matmul: Matmul, sizes: ProductSizes) -> MeasuredTimes | None:
        """Return the times of a linear layer: one product, whose inputs are read once."""
        grid = self._grids.get(("linear", self._precision, False, True))
        if grid is None or matmul.repeats > 1 or matmul.reused > 1:
            return None
        own = KernelSizes(sizes.rows, sizes.inner, sizes.columns)
        near = grid.clamped(own)
        nearest = ProductSizes(near.first, near.second, near.third, sizes.repeats)
        forward, backward = grid.seconds(near)
        # A slice may have a part of an element more; the widths are those before rounding.
        full, least = (
            (np.floor(sizes.inner) % each == 0) & (np.floor(sizes.columns) % each == 0)
            for each in (FULL, LEAST)
        )
        work = nearest.flops(1.0) / sizes.repeats
        classes: dict[VariantName, npt.NDArray[np.bool_]] = {
            "eighths": least & ~full,
            "unaligned": ~least,
        }
        for name, slowed in classes.items():
            ahead, behind = grid.variant(name, work)
            forward = forward * np.where(slowed, ahead, 1.0)
            backward = backward * np.where(slowed, behind, 1.0)
        times = sizes.repeats * matmul.count
        return MeasuredTimes(forward * times, backward * times, grid.covers(own), nearest)

    def _core(self, matmul: Matmul, sizes: ProductSizes, fused: bool) -> MeasuredTimes | None:
        """Return half of the time of a core of attention: that of one of its two products."""
        masked = fused and matmul.computed < 1.0
        grid = self._grids.get(("attention", self._of_attention, masked, fused))
        width, tokens = sorted((matmul.inner, matmul.columns))
        if grid is None or tokens != matmul.rows:
            return None
        one = np.ones_like(sizes.repeats)
        own = KernelSizes(sizes.repeats, sizes.rows, width * one)
        near = grid.clamped(own)
        wide = matmul.inner == width
        nearest = ProductSizes(
            near.second,
            near.third if wide else near.second,
            near.second if wide else near.third,
            near.first,
        )
        part = 0.5 * matmul.count * (matmul.computed / 0.5 if masked else matmul.computed)
        forward, backward = (part * each for each in grid.seconds(near))
        work = nearest.flops(2.0)
        kinds: dict[VariantName, bool] = {
            "unaligned": width % LEAST > 0,
            "grouped": matmul.queries_per_key > 1,
        }
        for name, applies in kinds.items():
            if applies:
                ahead, behind = grid.variant(name, work)
                forward, backward = forward * ahead, backward * behind
        return MeasuredTimes(forward, backward, grid.covers(own), nearest)


@lru_cache(maxsize=8)
def _grids(table: KernelTable) -> dict[tuple[str, str, bool, bool], GridTimes]:
    return {
        (each.kernel, each.precision, each.causal, each.fused): GridTimes(each)
        for each in table.grids
    }
