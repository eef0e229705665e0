"""Measured kernels in the planner: they count where they were measured, formulas elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.kernels.matrix_products import MatrixProducts
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.outlook.compute_origin import compute_origin
from paceline.plan.search.best_layout import best_on
from paceline.profile.families import Decoder, decoder
from paceline.specs import Cluster, Layout
from paceline.specs.measurements.kernels import KernelGrid
from paceline.specs.measurements.profile import Matmul, Timing
from plan.kernel_tables import AXES, WIDE, grid, kernel_table, of_power, sizes_inside, variant
from plan.shapes import cluster

NUMBERS = Coefficients.prior()
ONE = Layouts.of([Layout()], 1)


def _on(*grids: KernelGrid, device: str = "a100-80gb") -> Cluster:
    return cluster().model_copy(update={"kernels": kernel_table(device, *grids)})


def _times(where: Cluster, matmul: Matmul, layouts: Layouts = ONE) -> tuple[float, float]:
    products = MatrixProducts(where, "bf16", Engine(), NUMBERS)
    forward, backward = products.seconds(matmul, layouts, fused=matmul.attention)
    return float(forward[0]), float(backward[0])


def _linear(*sizes: int) -> Matmul:
    rows, inner, columns = sizes
    return Matmul(rows=rows, inner=inner, columns=columns, sliced="whole")


def _scores(heads: int, tokens: int, width: int, computed: float = 1.0, keys: int = 1) -> Matmul:
    return Matmul(
        rows=tokens,
        inner=width,
        columns=tokens,
        repeats=heads,
        each_sample=True,
        computed=computed,
        queries_per_key=keys,
        sliced="repeats",
        attention=True,
    )


@given(sizes=sizes_inside)
def test_a_measured_size_takes_its_measured_time(sizes: tuple[int, int, int]) -> None:
    law = of_power(0.9)
    forward, backward = _times(_on(grid(law)), _linear(*sizes))
    assert forward == pytest.approx(law(*sizes), rel=1e-9)
    assert backward == pytest.approx(2 * law(*sizes), rel=1e-9)


@given(
    sizes=st.tuples(*(st.integers(axis[-1] + 1, 64 * axis[-1]) for axis in AXES)),
    times=st.floats(0.1, 10),
)
def test_beyond_the_grid_the_formula_counts(sizes: tuple[int, int, int], times: float) -> None:
    """In proportion to the nearest measured size, so that nothing jumps at the edge."""
    edge = _times(cluster(), _linear(*(axis[-1] for axis in AXES)))[0]
    law = of_power(0.9)
    slower = times * edge / law(*(axis[-1] for axis in AXES))
    table = _on(grid(lambda *at: slower * law(*at)))
    formula, measured = (_times(where, _linear(*sizes))[0] for where in (cluster(), table))
    assert measured == pytest.approx(times * formula, rel=1e-9)


def test_widths_have_their_class_of_alignment() -> None:
    law = of_power(1.0)
    variants = [variant("eighths", 1.5), variant("unaligned", 4.0)]
    table = _on(grid(law, variants=variants))
    for inner, columns, slower in (
        (512, 256, 1.0),
        (512, 264, 1.5),
        (520, 256, 1.5),
        (520, 257, 4.0),
        (513, 256, 4.0),
    ):
        forward, backward = _times(table, _linear(100, inner, columns))
        assert forward == pytest.approx(slower * law(100, inner, columns), rel=1e-9)
        assert backward == pytest.approx(2 * forward, rel=1e-9)


def test_a_slice_has_the_time_of_its_own_size() -> None:
    law = of_power(0.8)
    whole = Matmul(rows=256, inner=512, columns=1024, sliced="columns")
    layouts = Layouts.of([Layout(tensor=4)], 1)
    assert _times(_on(grid(law)), whole, layouts)[0] == pytest.approx(law(256, 512, 256), rel=1e-9)


def test_experts_and_convolutions_keep_their_formula() -> None:
    table = _on(grid(of_power(1.0)))
    for changed in ({"repeats": 8, "routed": True}, {"reused": 9.0}):
        matmul = _linear(256, 512, 512).model_copy(update=changed)
        assert _times(table, matmul) == _times(cluster(), matmul)


def test_both_products_of_attention_make_up_its_core() -> None:
    law = of_power(1.0)
    causal = grid(law, kernel="attention", causal=True, variants=[variant("grouped", 0.5)])
    table = _on(causal)
    scores = _scores(64, 512, 128, computed=0.5)
    values = scores.model_copy(update={"inner": 512, "columns": 128})
    both = [_times(table, each)[0] for each in (scores, values)]
    assert sum(both) == pytest.approx(law(64, 512, 128), rel=1e-9)
    window = _times(table, _scores(64, 512, 128, computed=0.25))[0]
    assert window == pytest.approx(both[0] / 2)
    assert _times(table, _scores(64, 512, 128, computed=0.5, keys=4))[0] == pytest.approx(
        both[0] / 2
    )
    without_mask = _scores(64, 512, 128)
    assert _times(table, without_mask) == _times(cluster(), without_mask)
    crossed = scores.model_copy(update={"columns": 600})
    assert _times(table, crossed) == _times(cluster(), crossed)


def test_kernels_of_another_device_or_precision_do_not_count() -> None:
    matmul = _linear(256, 512, 512)
    for table in (
        _on(grid(of_power(1.0)), device="h100"),
        _on(grid(of_power(1.0), precision="fp32")),
    ):
        assert _times(table, matmul) == _times(cluster(), matmul)


def test_a_fitted_rate_speeds_measured_kernels_up() -> None:
    table = _on(grid(of_power(1.0)))
    usual, faster = (
        MatrixProducts(table, "bf16", Engine(), numbers).seconds(_linear(256, 512, 512), ONE, False)
        for numbers in (NUMBERS, NUMBERS.faster(2.0))
    )
    assert faster[0] == pytest.approx(usual[0] / 2)


SHAPE = Decoder(layers=4, hidden=512, heads=8, seq=256, vocab=1024)


def test_a_plan_says_how_much_was_measured() -> None:
    def quick(one: int, two: int, three: int) -> float:
        return 1e-14 * one * two * three

    linear = grid(quick, axes=WIDE)
    core = grid(quick, axes=WIDE, kernel="attention", causal=True)
    found, profile = from_priors(), decoder(SHAPE)
    origins = []
    for where in (cluster(), _on(linear), _on(linear, core)):
        best = best_on({"bf16": profile}, where.model_copy(update={"nodes": 1}), 8, found)
        origins.append(compute_origin(best, found))
    assert (origins[0].kernels, origins[0].blocks, origins[0].source) == (0, 0, "")
    assert 0.05 < origins[1].kernels < origins[2].kernels < 1
    assert origins[1].source == "a100-80gb, torch 2.13.0, 2026-11-18"


def test_measured_blocks_are_not_kernels() -> None:
    found, profile = from_priors(), decoder(SHAPE)
    timing = Timing(samples=(1,), forward_seconds=(1e-3,), backward_seconds=(2e-3,))
    block = profile.block.model_copy(update={"timing": timing})
    where = _on(grid(lambda *sizes: 1e-6, axes=WIDE)).model_copy(update={"nodes": 1})
    best = best_on({"bf16": profile.model_copy(update={"block": block})}, where, 8, found)
    origin = compute_origin(best, found)
    assert 0.5 < origin.blocks < 1
    assert 0 < origin.kernels <= 1 - origin.blocks
