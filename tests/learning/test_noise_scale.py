"""The noise scale is estimated without bias, and its interval holds as often as it says."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.learning.noise_scale import NoiseSums, variance_and_signal

WIDTH = 50
"""Independent directions of the noise."""


def _step(
    random: numpy.random.Generator, weights: list[int], mean: NDArray[numpy.float64]
) -> tuple[float, float, float]:
    """Return samples, variance and signal of one batch; a sample's gradient has covariance 1."""
    total = sum(weights)
    gradients = [mean + random.normal(size=WIDTH) / weight**0.5 for weight in weights]
    shares = [weight / total for weight in weights]
    whole = sum(share * each for share, each in zip(shares, gradients, strict=True))
    mean_square = sum(share * (each @ each) for share, each in zip(shares, gradients, strict=True))
    return total, *variance_and_signal(
        float(mean_square), float(whole @ whole), len(weights), total
    )


@pytest.mark.parametrize("weights", [[32, 32], [10, 22, 32], [8] * 8])
def test_the_estimates_have_no_bias_for_parts_of_any_weights(weights: list[int]) -> None:
    random = numpy.random.default_rng(1)
    mean = numpy.full(WIDTH, 0.05)
    sums = NoiseSums.of(_step(random, weights, mean) for _ in range(10_000))
    assert sums.variance / sums.steps == pytest.approx(WIDTH, rel=0.02)
    assert sums.signal / sums.steps == pytest.approx(mean @ mean, rel=0.1)


@pytest.mark.parametrize(("size", "steps"), [(0.3, 20), (0.1, 100), (0.05, 40)])
def test_nine_of_ten_intervals_hold_the_noise_scale(size: float, steps: int) -> None:
    """Also where the signal is hardly resolved, as in the last case."""
    random = numpy.random.default_rng(2)
    mean = numpy.full(WIDTH, size)
    truth, held, windows = WIDTH / (mean @ mean), 0, 1000
    for _ in range(windows):
        parts = mean + random.normal(size=(steps, 2, WIDTH)) / 16**0.5
        whole = parts.mean(axis=1)
        mean_square = (parts**2).sum(axis=2).mean(axis=1)
        variance, signal = variance_and_signal(mean_square, (whole**2).sum(axis=1), 2, 32)
        rows = zip([32.0] * steps, variance.tolist(), signal.tolist(), strict=True)
        found = NoiseSums.of(rows).scale()
        held += found.low <= truth <= (found.high or numpy.inf)
    assert 0.87 <= held / windows <= 0.93


def test_a_signal_below_the_noise_gives_a_lower_bound() -> None:
    random = numpy.random.default_rng(3)
    found = NoiseSums.of(_step(random, [2, 2], numpy.full(WIDTH, 0.01)) for _ in range(20)).scale()
    assert found.high is None
    assert found.low > 0


def test_one_step_bounds_nothing() -> None:
    found = NoiseSums.of([(4.0, 1.0, 1.0)]).scale()
    assert (found.value, found.low, found.high) == (None, 0.0, None)


_steps = st.lists(
    st.tuples(st.integers(1, 4096), st.floats(1e-6, 1e6), st.floats(-1e6, 1e6)), max_size=20
)


@given(_steps, _steps)
def test_sums_of_windows_add_up(
    first: list[tuple[float, float, float]], second: list[tuple[float, float, float]]
) -> None:
    apart = NoiseSums.of(first) + NoiseSums.of(second)
    together = NoiseSums.of(first + second)
    for name in NoiseSums.model_fields:
        scale = sum(abs(value) for row in first + second for value in row) ** 2 + 1
        assert getattr(apart, name) == pytest.approx(getattr(together, name), abs=1e-12 * scale)


@given(_steps)
def test_the_interval_is_in_order(steps: list[tuple[float, float, float]]) -> None:
    found = NoiseSums.of(steps).scale()
    assert found.high is None or found.low <= found.high
