"""Interpolation of measured kernels: exact at their points, never shorter for a larger size."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.kernels.grid_times import GridTimes, KernelSizes
from paceline.specs.measurements.kernels import KernelGrid
from plan.kernel_tables import AXES, grid, of_power, sizes_inside, variant

Point = tuple[int, int, int]
POINTS = list(product(*AXES))


def _sizes(*points: Point) -> KernelSizes:
    return KernelSizes(*np.array(points, dtype=np.float64).T)


def _forward(times: GridTimes, *points: Point) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(times.seconds(_sizes(*points))[0])


@pytest.mark.parametrize("exponent", [0.3, 1.0])
def test_measured_points_have_their_measured_times(exponent: float) -> None:
    made = grid(of_power(exponent))
    forward, backward = GridTimes(made).seconds(_sizes(*POINTS))
    assert forward == pytest.approx(np.array(made.forward_seconds), rel=1e-12)
    assert backward == pytest.approx(np.array(made.backward_seconds), rel=1e-12)


@given(point=sizes_inside, exponent=st.floats(0.1, 1.5))
def test_a_power_law_is_exact_between_points(point: Point, exponent: float) -> None:
    law = of_power(exponent)
    assert _forward(GridTimes(grid(law)), point)[0] == pytest.approx(law(*point), rel=1e-9)


times_of_points = st.lists(st.floats(1e-6, 1.0), min_size=len(POINTS), max_size=len(POINTS))


@given(times=times_of_points, small=sizes_inside, large=sizes_inside)
def test_a_larger_size_never_takes_less(times: list[float], small: Point, large: Point) -> None:
    """Whatever noise was measured."""
    made = grid(of_power(1.0), forward_seconds=times)
    both = np.sort([small, large], axis=0)
    below, above = GridTimes(made).seconds(KernelSizes(*both.T.astype(np.float64)))[0]
    assert below <= above * (1 + 1e-12)


@given(times=times_of_points)
def test_noise_is_never_added(times: list[float]) -> None:
    made = grid(of_power(1.0), forward_seconds=times)
    assert np.all(_forward(GridTimes(made), *POINTS) <= np.array(times) * (1 + 1e-9))


def test_only_sizes_within_the_grid_are_covered() -> None:
    times = GridTimes(grid(of_power(1.0)))
    sizes = _sizes((64, 64, 128), (63, 64, 128), (1024, 4096, 1024), (100, 5000, 200))
    assert times.covers(sizes).tolist() == [True, False, True, False]
    near = times.clamped(sizes)
    assert [each.tolist() for each in near.columns] == [
        [64, 64, 1024, 100],
        [64, 64, 4096, 4096],
        [128, 128, 1024, 200],
    ]


def test_a_variant_is_interpolated_by_work_and_flat_beyond() -> None:
    times = GridTimes(grid(of_power(1.0), variants=[variant("unaligned", 2.0, 8.0)]))
    ahead, behind = times.variant("unaligned", np.array([1e3, 1e6, 10**7.5, 1e9, 1e12]))
    assert ahead == pytest.approx([2.0, 2.0, 4.0, 8.0, 8.0])
    assert behind == pytest.approx(ahead)
    assert times.variant("grouped", np.array([1e6]))[0].tolist() == [1.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"axes": ((64,), (64, 512, 4096), (128, 1024))},
        {"axes": ((64, 64, 128), (64, 512, 4096), (128, 1024))},
        {"forward_seconds": [1.0]},
        {"forward_seconds": [0.0] * len(POINTS)},
        {"backward_seconds": [float("inf")] * len(POINTS)},
        {"precision": "fp7"},
    ],
)
def test_a_grid_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"axis|number|greater|finite|Input"):
        grid(of_power(1.0), **wrong)


def test_a_grid_survives_its_file() -> None:
    made = grid(of_power(0.7), variants=[variant("eighths", 1.1)])
    assert KernelGrid.model_validate_json(made.model_dump_json()) == made
