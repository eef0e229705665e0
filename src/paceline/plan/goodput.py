"""How much of a training's time is spent on training: failures, checkpoints, time slots.

Failures come independently of each other, as often on every device (a Poisson process); each costs
the work since the last checkpoint and a recovery. `docs/planning.md` has the formulas.
"""

import math
from dataclasses import dataclass

from paceline.specs.cluster import Cluster
from paceline.specs.errors import PacelineError
from paceline.specs.estimate import Origin

LLAMA3_FAILURES_PER_DEVICE_HOUR = 419 / (54 * 24 * 16_384)
"""419 unexpected stops in 54 days on 16,384 H100 (The Llama 3 herd of models, 2024)."""
HOUR = 3600.0


@dataclass(frozen=True)
class Goodput:
    """How often to save, and what is left for training."""

    interval_seconds: float
    """Of training between two checkpoints; infinite where nothing fails."""
    fraction: float
    """Of all time, what is training that is not lost again."""
    origin: Origin
    """Of the failure rate."""


def failures_per_device_hour(cluster: Cluster) -> tuple[float, Origin]:
    """As the cluster's file says, else as in the training of Llama 3."""
    if cluster.failures_per_device_hour is not None:
        return cluster.failures_per_device_hour, "measured"
    return LLAMA3_FAILURES_PER_DEVICE_HOUR, "published"


def goodput(cluster: Cluster, checkpoint_seconds: float, recovery_seconds: float) -> Goodput:
    """Of a training on all devices of the cluster that saves as often as is best.

    `checkpoint_seconds` (above 0) is how long training stands still for a checkpoint;
    `recovery_seconds` how long it takes from a failure until training goes on.
    """
    rate, origin = failures_per_device_hour(cluster)
    if rate == 0:
        return Goodput(math.inf, 1.0, origin)
    between = HOUR / (rate * cluster.devices)
    interval = best_interval(checkpoint_seconds, between)
    return Goodput(
        interval, useful_fraction(interval, checkpoint_seconds, recovery_seconds, between), origin
    )


def best_interval(checkpoint_seconds: float, between_failures_seconds: float) -> float:
    """Seconds of training between checkpoints that lose the least (Daly 2006).

    Where checkpoints are much shorter than the time between failures this is Young's square root.
    """
    if checkpoint_seconds >= 2 * between_failures_seconds:
        return between_failures_seconds
    part = checkpoint_seconds / (2 * between_failures_seconds)
    root = math.sqrt(2 * checkpoint_seconds * between_failures_seconds)
    return root * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint_seconds


def useful_fraction(
    interval_seconds: float,
    checkpoint_seconds: float,
    recovery_seconds: float,
    between_failures_seconds: float,
) -> float:
    """Of all time, what is training that is not lost again (Daly 2006).

    Exact where failures are a Poisson process; they may strike checkpoints and recoveries too.
    """
    mean = between_failures_seconds
    took = mean * math.exp(recovery_seconds / mean)
    took *= math.expm1((interval_seconds + checkpoint_seconds) / mean)
    return interval_seconds / took


def time_slots(
    training_seconds: float,
    slot_seconds: float,
    start_seconds: float,
    checkpoint_seconds: float,
    fraction: float = 1.0,
) -> int:
    """Turns under a scheduler's time limit: each starts up, trains and saves before it is over.

    `training_seconds` are those of all steps, `start_seconds` those from a turn's begin to its
    first step, `fraction` is the goodput between.
    """
    left = slot_seconds - start_seconds - checkpoint_seconds
    if left <= 0:
        raise PacelineError(
            f"a time slot of {slot_seconds:.0f} s is over before the first step: starting takes"
            f" {start_seconds:.0f} s and saving {checkpoint_seconds:.0f} s",
            fix="ask for longer time slots",
        )
    return max(math.ceil(training_seconds / (left * fraction)), 1)
