"""Rules for another batch keep what they promise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.learning.critical_batch import critical_batch
from paceline.learning.rules import batch_rule, gain
from paceline.specs import PacelineError

_batch = st.integers(1, 100_000)
_critical = st.floats(1.0, 1e6)


@given(_batch, _batch, _critical)
def test_the_gain_lies_between_one_and_the_batch(batch: int, tuned_at: int, scale: float) -> None:
    times = batch / tuned_at
    found = gain(times, tuned_at, scale)
    assert min(1, times) * 0.999 <= found <= max(1, times) * 1.001
    assert gain(times, tuned_at, 1e12) == pytest.approx(times, rel=1e-3)


@given(_batch, _batch, st.one_of(st.none(), _critical))
def test_half_lives_stay_the_same_in_samples(
    batch: int, tuned_at: int, critical: float | None
) -> None:
    for family in ("linear", "square root"):
        found = batch_rule(family, batch, tuned_at, critical)
        assert found.rate_times * found.decay_times == pytest.approx(batch / tuned_at)
    averaged = 0.9**found.betas_power
    assert math.log(max(averaged, 1e-300)) / batch == pytest.approx(
        max(math.log(0.9) * batch / tuned_at, math.log(1e-300)) / batch
    )


def test_the_batch_that_was_tuned_changes_nothing() -> None:
    for family in ("linear", "square root"):
        found = batch_rule(family, 64, 64, 1000.0)
        assert found.rate_times == found.betas_power == found.decay_times == 1.0
        assert found.samples_times == 1.0


def test_the_critical_batch_weighs_noise_scales_by_progress() -> None:
    assert critical_batch([(10, 100.0), (90, 100.0)], 8) == pytest.approx(100)
    early, late = (50, 10.0), (50, 1000.0)
    assert 10 < critical_batch([early, late], 100) < 505  # late steps make less progress


def test_without_a_measurement_there_is_no_critical_batch() -> None:
    with pytest.raises(PacelineError, match="no step has measured"):
        critical_batch([], 8)
