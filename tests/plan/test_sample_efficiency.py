"""Steps of another batch size that learn as much."""

from paceline.plan.inputs import equivalent_steps


def test_another_batch_takes_other_steps() -> None:
    assert equivalent_steps(64, 64, 100, None) == 100
    assert equivalent_steps(128, 64, 100, None) == 50  # as many samples
    # At the critical batch a step learns half as much for a sample as the smallest ones do.
    assert equivalent_steps(1000, 1, 100_000, 1000.0) == 200
    assert equivalent_steps(128, 64, 100, 1e9) == 51  # rounded up
