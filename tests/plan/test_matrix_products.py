"""Matrix products: alignment, waves of tiles, gradients that are added up."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.matrix_products import MatrixProducts
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.step_time import StepModel
from paceline.profile.families import Decoder, decoder
from paceline.specs import Layout
from paceline.specs.measurements.profile import Matmul
from plan.shapes import cluster, steps

NUMBERS = Coefficients.prior()
ONE = Layouts.of([Layout()], 1)


def _seconds(matmul: Matmul, layouts: Layouts = ONE) -> float:
    products = MatrixProducts(cluster(), "bf16", Engine(), NUMBERS)
    return float(products.seconds(matmul, layouts, fused=False)[0][0])


def _step(heads: int) -> float:
    shape = Decoder(
        layers=80, hidden=14400, heads=heads, seq=2048, vocab=51200, attention="whole", dropout=True
    )
    model = StepModel(decoder(shape), cluster(), "bf16", Engine(), NUMBERS)
    return float(model.times(ONE, 1.0).total[0])


def test_heads_of_150_are_slower_than_heads_of_144() -> None:
    """BLOOM's sweep: per FLOP, models with heads of 150 took about a third longer."""
    assert 1.15 < _step(96) / _step(100) < 1.6


@pytest.mark.parametrize("columns", [4096, 14336])
def test_one_tile_more_than_the_units_have_takes_another_wave(columns: int) -> None:
    """A100: 108 units, tiles of 256 x 128."""
    per_row = columns // 128
    full = 108 // per_row * 256 if per_row <= 108 else 256
    product = Matmul(rows=full, inner=8192, columns=columns, sliced="whole")
    beyond = product.model_copy(update={"rows": full + 1})
    assert _seconds(beyond) > 1.05 * _seconds(product)


def test_backward_has_its_own_sizes() -> None:
    """Forward has thousands of tiles, the gradient of the weights 128 for 108 units: two waves."""
    thin = Matmul(rows=65536, inner=256, columns=16384, sliced="whole")
    products = MatrixProducts(cluster(), "bf16", Engine(), NUMBERS)
    forward, backward = products.seconds(thin, ONE, fused=False)
    assert backward[0] > 2.15 * forward[0]


def test_units_share_the_long_sums_of_a_convolution() -> None:
    """ResNet-50 was predicted at half its speed when the gradient of 576 x 64 weights, a sum over
    800,000 places, had to fit the units with its few tiles."""
    convolution = Matmul(rows=256 * 56 * 56, inner=576, columns=64, reused=9, sliced="whole")
    products = MatrixProducts(cluster(), "bf16", Engine(), NUMBERS)
    forward, backward = products.seconds(convolution, ONE, fused=False)
    assert backward[0] < 4 * forward[0]


def test_a_cpu_has_no_waves() -> None:
    """Before, a CPU's small products were charged for idle units of a GPU's tiles."""
    where = cluster()
    device = where.device.model_copy(update={"kind": "cpu", "units": 2})
    products = MatrixProducts(
        where.model_copy(update={"device": device}), "bf16", Engine(), NUMBERS
    )
    small, large = (Matmul(rows=rows, inner=512, columns=64, sliced="whole") for rows in (64, 6400))
    times = [float(products.seconds(each, ONE, fused=False)[0][0]) for each in (small, large)]
    assert times[1] > 20 * times[0]


def test_gradients_are_added_up_from_the_second_micro_batch_on() -> None:
    def compute(micro_batch: int, accumulated_bytes: int) -> float:
        what = replace(
            steps(Layout(micro_batch=micro_batch)),
            engine=Engine(accumulated_bytes=accumulated_bytes),
            batch=np.array([8.0]),
        )
        return float(what.predicted(NUMBERS)[0])

    assert compute(8, 6) == compute(8, 0)
    assert compute(1, 6) > compute(1, 0)
