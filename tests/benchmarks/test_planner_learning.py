"""Samples to a target: the law comes back from rows that follow it, and from rows with noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.score.learning import Learning, closest_line, fit_learning
from paceline.specs import PacelineError

BATCHES = np.array([256.0, 512, 1024, 1024, 4096, 8192])


@settings(max_examples=50, deadline=None)
@given(least=st.floats(1e3, 1e9), critical=st.floats(50, 1e6))
def test_the_law_comes_back(least: float, critical: float) -> None:
    law = Learning(least, critical)
    found = fit_learning(BATCHES, law.samples(BATCHES))
    assert found.least_samples == pytest.approx(least, rel=1e-6)
    assert found.critical_batch == pytest.approx(critical, rel=1e-3)
    assert found.spread < 1e-6


def test_noise_and_a_row_far_off() -> None:
    rng = np.random.default_rng(3)
    batches = rng.choice(BATCHES, 40)
    law = Learning(1e6, 4000)
    samples = law.samples(batches) * np.exp(0.03 * rng.standard_normal(40))
    samples[7] *= 3
    found = fit_learning(batches, samples)
    np.testing.assert_allclose(found.samples(BATCHES), law.samples(BATCHES), rtol=0.04)
    assert 0.03 < found.spread < 0.1


def test_at_the_critical_batch_twice_the_samples() -> None:
    law = Learning(least_samples=1000, critical_batch=64)
    assert law.samples(64) == 2000
    assert law.steps(64) == math.ceil(2000 / 64)
    # Twice the fewest steps, which the largest batches come close to (McCandlish et al. 2018).
    fewest = float(law.samples(1e9)) / 1e9
    assert float(law.samples(64)) / 64 == pytest.approx(2 * fewest, rel=1e-6)


def test_batches_of_one_size_say_nothing_about_others() -> None:
    found = fit_learning(np.array([8.0, 8.0, 8.0]), np.array([3000.0, 3100.0, 3200.0]))
    assert (found.least_samples, found.critical_batch) == (3100.0, math.inf)
    assert found.samples(64) == 3100


def test_no_line_goes_below_zero() -> None:
    falling = closest_line(np.array([1.0, 2.0, 4.0]), np.array([4.0, 3.0, 2.0]))
    assert falling.slope == 0


def test_one_training_does_not_say_how_sure_it_is() -> None:
    found = fit_learning(np.array([8.0]), np.array([3000.0]))
    assert found == Learning(3000.0, math.inf, spread=math.inf)


def test_no_number_of_samples() -> None:
    with pytest.raises(PacelineError, match="grow as fast as the batch"):
        fit_learning(np.array([100.0, 200.0, 400.0]), np.array([1.0, 2.0, 5.0]))
