"""Sizes of a matrix product on one slice, for every layout."""

from dataclasses import dataclass

import numpy as np

from paceline.cluster.collectives import Array
from paceline.plan.cost.layout_table import Layouts
from paceline.specs.measurements.profile import Matmul


@dataclass(frozen=True)
class ProductSizes:
    """A product of a layout's slice: rows x inner by inner x columns, several times."""

    rows: Array
    inner: Array
    columns: Array
    repeats: Array

    def flops(self, count: float) -> Array:
        """Return the FLOPs of `count` such products, also of what a mask skips."""
        return 2.0 * count * self.rows * self.inner * self.columns * self.repeats


def sizes_on_a_slice(matmul: Matmul, layouts: Layouts) -> ProductSizes:
    """Return the sizes of a product on one slice, for one micro-batch."""

    def slices(of: str) -> Array | float:
        return layouts.tensor if matmul.sliced == of else 1.0

    one = np.ones_like(layouts.tensor)
    samples = layouts.samples
    return ProductSizes(
        rows=matmul.rows * (one if matmul.each_sample else samples),
        inner=matmul.inner * one / slices("inner"),
        columns=matmul.columns * one / slices("columns"),
        repeats=matmul.repeats * (samples if matmul.each_sample else one) / slices("repeats"),
    )
