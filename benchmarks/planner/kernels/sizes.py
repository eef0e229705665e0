"""Single kernels of sizes that the table does not hold.

The sizes below were chosen before anything was measured. Three predictions: the planner's formulas
with the probed rates, the measured table, and the null model, one constant rate: the median over
the table's points of that kernel.
"""

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.planner.kernels.device import PRECISIONS, Row
from paceline.plan.calibration.priors import priors_for
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.matrix_products import MatrixProducts
from paceline.plan.cost.layout_table import Layouts
from paceline.specs import Layout
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Matmul
from paceline.train.probing.device_clock import DeviceClock
from paceline.train.probing.kernel_grids import KernelCase, kernel_cases

LINEAR = (
    (200, 384, 1152),
    (384, 384, 1536),
    (1000, 768, 768),
    (2048, 320, 640),
    (128, 1536, 384),
    (700, 500, 300),
    (512, 1000, 250),
    (96, 128, 1024),
    (333, 111, 777),
    (8192, 512, 512),
    (300, 5000, 200),
    (32, 300, 3000),
)
"""Rows, inner and columns; the last three lie outside the grid of a CPU."""
ATTENTION = (
    (6, 128, 64),
    (12, 200, 64),
    (32, 512, 48),
    (8, 900, 64),
    (24, 128, 80),
    (8, 256, 100),
    (2, 2048, 64),
)
"""Heads of all samples, tokens, width of a head; the last one lies outside."""


def sizes(plain: Cluster, probed: Cluster, device: torch.device) -> Iterator[Row]:
    """Yield the kernels of each size, forward and backward."""
    clock, one = DeviceClock(device), Layouts.of([Layout()], 1)
    numbers = Coefficients.prior(priors_for(plain))
    for precision in PRECISIONS:
        products = [MatrixProducts(each, precision, Engine(), numbers) for each in (plain, probed)]
        for case, size in _cases(precision):
            rate = _constant_rate(probed, case)
            if rate is None:
                continue
            calls = case.calls(size, device)
            seconds = clock.seconds(calls.forward) + sum(map(clock.seconds, calls.backward))
            matmuls = _matmuls(case, size)
            formula, kernels = (
                sum(
                    float(each[0])
                    for matmul in matmuls
                    for each in model.seconds(matmul, one, case.kernel == "attention")
                )
                for model in products
            )
            null = 3 * sum(each.flops for each in matmuls) / rate
            shape = " x ".join(map(str, size)) + (", causal" if case.causal else "")
            yield Row(
                case.kernel, f"{case.kernel} {shape}", precision, seconds, formula, kernels, null
            )


def _cases(precision: str) -> Iterator[tuple[KernelCase, tuple[int, int, int]]]:
    for case in kernel_cases(torch.device("cpu")):
        if case.precision == precision and case.fused:
            for sizes in LINEAR if case.kernel == "linear" else ATTENTION:
                yield case, sizes


def _matmuls(case: KernelCase, sizes: tuple[int, int, int]) -> tuple[Matmul, ...]:
    """Return the products of a kernel as a profile has them."""
    if case.kernel == "linear":
        rows, inner, columns = sizes
        return (Matmul(rows=rows, inner=inner, columns=columns, sliced="whole"),)
    heads, tokens, width = sizes
    scores = Matmul(
        rows=tokens,
        inner=width,
        columns=tokens,
        repeats=heads,
        computed=0.5 if case.causal else 1.0,
        sliced="whole",
        attention=True,
    )
    return scores, scores.model_copy(update={"inner": tokens, "columns": width})


def _constant_rate(probed: Cluster, case: KernelCase) -> float | None:
    """Return the median FLOP/s, forward and backward, of the points of a kernel's grid; None if
    there was no time to measure it."""
    assert probed.kernels is not None
    for grid in probed.kernels.grids:
        if (grid.kernel, grid.precision, grid.causal, grid.fused) == (
            case.kernel,
            case.precision,
            case.causal,
            case.fused,
        ):
            one, two, three = np.meshgrid(*grid.axes, indexing="ij")
            work = 2.0 * one * two * three
            if grid.kernel == "attention":
                work = 2.0 * work * two * (0.5 if grid.causal else 1.0)
            seconds = np.add(grid.forward_seconds, grid.backward_seconds)
            return float(np.median(3.0 * work.ravel() / seconds))
    return None
