"""Steps of another batch size that learn as much."""

import pytest

from paceline.learning.critical_batch import likely
from paceline.plan.training_length import TrainingLength
from paceline.specs import CriticalBatch


def length(batch: int, steps: int, critical: float | None) -> TrainingLength:
    """A training's length, with a critical batch that is known exactly."""
    known = None if critical is None else CriticalBatch(value=critical, low=critical, high=critical)
    return TrainingLength(batch, steps, known)


def test_another_batch_takes_other_steps() -> None:
    assert length(64, 100, None).steps_with(64) == 100
    assert length(64, 100, None).steps_with(128) == 50  # as many samples
    # At the critical batch a step learns half as much for a sample as the smallest ones do.
    assert length(1, 100_000, 1000.0).steps_with(1000) == 200
    assert length(64, 100, 1e9).steps_with(128) == 51  # rounded up


def test_an_interval_stands_for_likely_values() -> None:
    values = likely(CriticalBatch(value=1000.0, low=500.0, high=2000.0))
    assert values[2] == pytest.approx(1000.0)
    assert values[0] * values[-1] == pytest.approx(1e6)
    assert 500 < values[0] < values[1] < 1000
    # Small critical batches weigh more than large ones: they make a large batch cost the most.
    uncertain = TrainingLength(64, 1000, CriticalBatch(value=1000.0, low=100.0, high=10_000.0))
    assert uncertain.samples_times(1024) > length(64, 1000, 1000.0).samples_times(1024)


def test_a_critical_batch_without_an_upper_end_counts_as_its_lower_one() -> None:
    at_least = CriticalBatch(value=None, low=500.0, high=None)
    assert likely(at_least) == [500.0]
    assert TrainingLength(64, 1000, at_least).steps_with(512) == length(64, 1000, 500.0).steps_with(
        512
    )
