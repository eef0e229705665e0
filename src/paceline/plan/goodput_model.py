"""Goodput of a training: failures, checkpoints, time slots.

Failures are independent and equally frequent on every device (a Poisson process); each costs the
work since the last checkpoint or peer copy, and a recovery. `docs/planning.md` has the formulas,
`docs/goodput.md` the results.
"""

import math
from dataclasses import dataclass

from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Origin

LLAMA3_FAILURES_PER_DEVICE_HOUR = 419 / (54 * 24 * 16_384)
"""419 unexpected stops in 54 days on 16,384 H100 (The Llama 3 herd of models, 2024)."""
HOUR = 3600.0
_MOST_MEANS = 500.0
"""Recoveries and intervals that take so many times the mean time between failures never succeed;
exp overflows soon after."""


@dataclass(frozen=True)
class Goodput:
    """The best checkpoint interval, and the goodput with it."""

    interval_seconds: float
    """Training time between two checkpoints; infinite if nothing fails."""
    fraction: float
    """Fraction of the time that is useful training."""
    origin: Origin
    """Origin of the failure rate."""


def failures_per_device_hour(cluster: Cluster) -> tuple[float, Origin]:
    """Return the rate of the cluster's file, else that of the training of Llama 3."""
    if cluster.failures_per_device_hour is not None:
        return cluster.failures_per_device_hour, "measured"
    return LLAMA3_FAILURES_PER_DEVICE_HOUR, "published"


def best_interval(checkpoint_seconds: float, between_failures_seconds: float) -> float:
    """Return the checkpoint interval that loses the least, in seconds of training (Daly 2006).

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
    """Return the fraction of the time that is useful training (Daly 2006).

    Exact if failures are a Poisson process; they may strike checkpoints and recoveries too.
    """
    mean = between_failures_seconds
    if max(recovery_seconds, interval_seconds + checkpoint_seconds) > _MOST_MEANS * mean:
        return 0.0
    took = mean * math.exp(recovery_seconds / mean)
    took *= math.expm1((interval_seconds + checkpoint_seconds) / mean)
    return interval_seconds / took


@dataclass(frozen=True)
class Recovery:
    """How a training recovers from a node failure."""

    detection_seconds: float
    """From a failure until the other workers detect it."""
    restart_seconds: float
    """From detection until training continues from a checkpoint on disk."""
    checkpoint_seconds: float
    """Pause of the training for such a checkpoint (above 0)."""
    uncovered: float = 1.0
    """Fraction of failures after which only the disk has the state; 1 without peer copies."""
    regroup_seconds: float = 0.0
    """After other failures: from detection until training continues from peer copies."""
    copy_interval_seconds: float = 1.0
    """Training time between peer copies; one step if replicas hold the same state."""
    copy_seconds: float = 0.0
    """Pause of the training for such a copy."""
    return_seconds: float = 0.0
    """From a failure until the node, or a replacement, is available."""
    spares: int = 0
    """Spare nodes, which replace lost ones at once."""
    nodes_per_replica: int = 1
    """Nodes that stop if one is lost and no spare is left."""

    def __post_init__(self) -> None:
        if not 0 <= self.uncovered <= 1:
            raise PacelineError(
                f"the share of failures that only a checkpoint covers is {self.uncovered}",
                fix="give a share between 0 and 1",
            )

    def checkpoint_interval(self, between_failures_seconds: float) -> float:
        """Return the interval of checkpoints on disk that loses the least, in seconds of
        training."""
        if self.uncovered == 0:
            return math.inf
        return best_interval(self.checkpoint_seconds, between_failures_seconds / self.uncovered)

    def useful_fraction(self, nodes: int, between_failures_seconds: float) -> float:
        """Return the useful fraction of the work that `nodes` failure-free nodes would do.

        The two kinds of recovery are independent, nested Poisson processes: failures that need the
        disk strike in the time that remains after failures that peers cover.
        """
        covered = restored = 1.0
        if self.uncovered < 1:
            covered = useful_fraction(
                self.copy_interval_seconds,
                self.copy_seconds,
                self.detection_seconds + self.regroup_seconds,
                between_failures_seconds / (1 - self.uncovered),
            )
        if self.uncovered > 0:
            restored = useful_fraction(
                self.checkpoint_interval(between_failures_seconds),
                self.checkpoint_seconds,
                self.detection_seconds + self.restart_seconds,
                between_failures_seconds / self.uncovered,
            )
        missing = nodes_short(self.return_seconds / between_failures_seconds, self.spares)
        working = max(0.0, 1 - missing * self.nodes_per_replica / nodes)
        return covered * restored * working


def goodput(cluster: Cluster, recovery: Recovery) -> Goodput:
    """Return the goodput on all devices of the cluster with the best checkpoint interval."""
    rate, origin = failures_per_device_hour(cluster)
    if rate == 0:
        return Goodput(math.inf, 1.0, origin)
    between = HOUR / (rate * cluster.devices)
    fraction = recovery.useful_fraction(cluster.nodes, between)
    return Goodput(recovery.checkpoint_interval(between), fraction, origin)


def nodes_short(away: float, spares: int) -> float:
    """Return the mean number of nodes missing beyond the spares, where the number under repair is
    Poisson distributed with mean `away`."""
    short, chance = away - spares, math.exp(-away)
    for count in range(spares):
        short += (spares - count) * chance
        chance *= away / (count + 1)
    return max(0.0, short)


def time_slots(
    training_seconds: float,
    slot_seconds: float,
    start_seconds: float,
    checkpoint_seconds: float,
    fraction: float = 1.0,
) -> int:
    """Return the number of jobs under a scheduler's time limit: each starts, trains and saves.

    `training_seconds`: of all steps; `start_seconds`: from a job's start to its first step;
    `fraction`: the goodput in between.
    """
    left = slot_seconds - start_seconds - checkpoint_seconds
    if left <= 0:
        raise PacelineError(
            f"a time slot of {slot_seconds:.0f} s is over before the first step: starting takes"
            f" {start_seconds:.0f} s and saving {checkpoint_seconds:.0f} s",
            fix="ask for longer time slots",
        )
    return max(math.ceil(training_seconds / (left * fraction)), 1)
