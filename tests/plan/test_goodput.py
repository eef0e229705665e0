"""Goodput: the formulas against what Daly printed, and against failures that are drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.plan.goodput_model import (
    LLAMA3_FAILURES_PER_DEVICE_HOUR,
    Recovery,
    best_interval,
    goodput,
    time_slots,
    useful_fraction,
)
from paceline.specs import PacelineError
from plan.shapes import cluster

MINUTE, HOUR = 60.0, 3600.0
DISK = Recovery(detection_seconds=0, restart_seconds=600, checkpoint_seconds=30)


@pytest.mark.parametrize(
    ("between", "minutes"), [(24 * HOUR, 117.0), (6 * HOUR, 57.0), (15 * MINUTE, 9.1)]
)
def test_the_intervals_that_daly_printed(between: float, minutes: float) -> None:
    assert best_interval(5 * MINUTE, between) / MINUTE == pytest.approx(minutes, rel=0.01)


def test_short_checkpoints_follow_young() -> None:
    assert best_interval(1.0, 1e8) == pytest.approx(math.sqrt(2e8), rel=1e-3)


def test_checkpoints_longer_than_life_are_as_rare_as_failures() -> None:
    assert best_interval(100.0, 50.0) == 50.0
    assert best_interval(500.0, 50.0) == 50.0


@settings(max_examples=50, deadline=None)
@given(checkpoint=st.floats(1, 600), between=st.floats(600, 1e6))
def test_no_other_interval_is_much_better(checkpoint: float, between: float) -> None:
    chosen = useful_fraction(best_interval(checkpoint, between), checkpoint, 60.0, between)
    others = np.geomspace(0.05, 20, 400) * best_interval(checkpoint, between)
    best = max(useful_fraction(float(each), checkpoint, 60.0, between) for each in others)
    assert chosen >= best * (1 - 2e-3)


@pytest.mark.parametrize(("checkpoint", "between"), [(30.0, 3 * HOUR), (120.0, 600.0)])
def test_the_fraction_is_that_of_drawn_failures(checkpoint: float, between: float) -> None:
    interval, recovery, segments = best_interval(checkpoint, between), 90.0, 20_000
    rng = np.random.default_rng(7)
    took = sum(_segment(rng, interval + checkpoint, recovery, between) for _ in range(segments))
    drawn = segments * interval / took
    said = useful_fraction(interval, checkpoint, recovery, between)
    assert drawn == pytest.approx(said, rel=0.01)
    first_order = 1 - checkpoint / interval - interval / (2 * between) - recovery / between
    assert said == pytest.approx(first_order, abs=0.01 if between > HOUR else 0.3)


def _segment(rng: np.random.Generator, length: float, recovery: float, between: float) -> float:
    """Seconds until `length` seconds passed without a failure, recoveries included."""
    took = 0.0
    while (lived := rng.exponential(between)) < length:
        took += lived
        while (lived := rng.exponential(between)) < recovery:
            took += lived
        took += recovery
    return took + length


def test_llama_3() -> None:
    """16,384 devices fail every 3.1 hours; its training was effective for more than 90 %."""
    large = cluster(nodes=2048)
    found = goodput(large, DISK)
    assert 1 / (LLAMA3_FAILURES_PER_DEVICE_HOUR * large.devices) == pytest.approx(3.09, abs=0.01)
    assert found.interval_seconds / MINUTE == pytest.approx(13.2, abs=0.3)
    assert 0.85 < found.fraction < 0.95
    assert found.origin == "published"


def test_a_rate_of_ones_own() -> None:
    sound = cluster().model_copy(update={"failures_per_device_hour": 0.0})
    assert goodput(sound, DISK).fraction == 1
    frail = cluster().model_copy(update={"failures_per_device_hour": 0.01})
    assert goodput(frail, DISK).origin == "measured"
    assert goodput(frail, DISK).fraction < goodput(cluster(), DISK).fraction < 1


def test_time_slots() -> None:
    hour = 3600.0
    assert time_slots(10 * hour, hour, 300, 60) == math.ceil(36_000 / 3240)
    assert time_slots(10 * hour, hour, 300, 60, fraction=0.5) == math.ceil(36_000 / 1620)
    assert time_slots(1.0, hour, 300, 60) == 1
    assert time_slots(10 * hour, 100 * hour, 300, 60) == 1


def test_a_time_slot_that_is_too_short() -> None:
    with pytest.raises(PacelineError, match="over before the first step: starting takes 300 s"):
        time_slots(1000, 350, 300, 60)
