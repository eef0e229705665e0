"""The best layout on every number of nodes, and the choice among them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.energy import step_joules
from paceline.plan.search.best_layout import Best, Profiles, best_on
from paceline.plan.search.ranking import search
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import ScalingPoint
from paceline.specs.plans.sync import SyncSettings, default_sync

Goal = Literal["fastest", "cheapest", "greenest", "knee"]
WORTHWHILE = 0.5
"""Least gain of a further node, relative to a node of the smallest number."""


def node_counts(most: int) -> list[int]:
    """Return the powers of two up to the nodes of a cluster, and all of them."""
    return sorted({*(2**power for power in range(most.bit_length())), most})


def bests_on(
    profiles: Profiles,
    cluster: Cluster,
    batch: int,
    found: Fit,
    counts: Sequence[int],
    sync: SyncSettings | None = None,
) -> list[Best]:
    """Return the best layout on each number of nodes that has one, in ascending order."""
    each = (
        best_on(profiles, cluster.model_copy(update={"nodes": count}), batch, found, sync)
        for count in sorted(counts)
    )
    bests = [best for best in each if best is not None]
    if bests:
        return bests
    largest = cluster.model_copy(update={"nodes": max(counts)})
    raise _nothing_fits(profiles, largest, batch, found, sync or default_sync())


def choose(
    bests: Sequence[Best],
    goal: Goal,
    cluster: Cluster,
    within: Callable[[Best], bool] = lambda best: True,
) -> Best:
    """Return the best layout by the goal, on a number of nodes within the limits."""
    allowed = [best for best in bests if within(best)]
    if not allowed:
        fastest = min(bests, key=_seconds)
        raise PacelineError(
            f"no number of nodes keeps within the limits: the fastest is {fastest.nodes}",
            fix="allow other nodes with --nodes, give a later --deadline or a larger --budget, or"
            " train for fewer steps",
        )
    if goal == "fastest":
        return min(allowed, key=_seconds)
    if goal == "cheapest":
        return min(allowed, key=lambda best: best.nodes / best.learned_per_second)
    if goal == "greenest":
        return min(allowed, key=lambda best: _joules(best, cluster))
    knee = wasted_beyond(bests) or bests[-1].nodes
    return min(allowed, key=lambda best: abs(best.nodes - knee))


def wasted_beyond(bests: Sequence[Best]) -> int | None:
    """Return the number of nodes beyond which another one adds less than half the throughput per
    node of the smallest number; None if all are worth it."""
    first = bests[0].learned_per_second / bests[0].nodes
    for fewer, more in pairwise(bests):
        gained = more.learned_per_second - fewer.learned_per_second
        if gained < WORTHWHILE * first * (more.nodes - fewer.nodes):
            return fewer.nodes
    return None


def curve(bests: Sequence[Best]) -> tuple[ScalingPoint, ...]:
    """Return the scaling curve for tables and charts."""
    first = bests[0].learned_per_second / bests[0].nodes
    return tuple(
        ScalingPoint(
            nodes=best.nodes,
            devices=best.estimate.layout.workers,
            layout=best.estimate.layout,
            sync=best.estimate.sync,
            step_seconds=best.estimate.step_seconds,
            samples_per_second=best.samples_per_second,
            efficiency=best.learned_per_second / best.nodes / first,
        )
        for best in bests
    )


def _seconds(best: Best) -> float:
    """Return the step time, multiplied by the extra samples that the mode needs."""
    return best.estimate.step_seconds.value * best.estimate.extra_samples


def _joules(best: Best, cluster: Cluster) -> float:
    found = step_joules(best.estimate, cluster.model_copy(update={"nodes": best.nodes}))
    if found is None:
        raise PacelineError(
            f"nobody knows what power {cluster.device.name} draws, so no plan is the greenest",
            fix="write `watts`, its power limit, into [device] of the cluster's file",
        )
    return found * best.estimate.extra_samples


def _nothing_fits(
    profiles: Profiles, cluster: Cluster, batch: int, found: Fit, sync: SyncSettings
) -> PacelineError:
    """Explain why nothing fits; an indivisible batch raises its own error."""
    least = np.inf
    scored = 0
    for precision, profile in profiles.items():
        some = search(profile, cluster, batch, found, precision, sync)
        scored += some.scored
        least = min(least, float(some.too_large_held.min()))
    return PacelineError(
        f"none of {scored} layouts fits: the smallest needs {least / 1e9:.1f} GB on a device"
        f" of {cluster.device.memory_bytes / 1e9:.1f} GB, less a reserve",
        fix="use more nodes, or a smaller model",
    )
