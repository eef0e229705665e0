"""The best layout on every number of nodes, and the choice among them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.energy import step_joules
from paceline.plan.cost.engine_kind import EngineKind
from paceline.plan.cost.node_kinds import first_nodes
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.search.best_layout import Best, Profiles, best_on
from paceline.plan.search.infeasible import DoesNotFit, Infeasible
from paceline.plan.search.nearest import Nearest
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import ScalingPoint
from paceline.specs.plans.sync import SyncSettings

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
    kind: EngineKind = PACELINE,
) -> tuple[list[Best], dict[int, Infeasible]]:
    """Return the best layout on each number of nodes that has one, in ascending order; and the
    reason for each that has none.

    If the model fits on none, the engine's variants that save memory are tried in turn.
    """
    bests, refused = _on_each(profiles, cluster, batch, found, counts, sync, kind)
    if not bests and any(isinstance(each, DoesNotFit) for each in refused.values()):
        for variant in kind.savings:
            bests, _ = _on_each(profiles, cluster, batch, found, counts, sync, variant)
            if bests:
                break
    if not bests:
        raise Nearest(profiles, cluster, batch, sync, kind).explained(refused)
    return bests, refused


def _on_each(
    profiles: Profiles,
    cluster: Cluster,
    batch: int,
    found: Fit,
    counts: Sequence[int],
    sync: SyncSettings | None,
    kind: EngineKind,
) -> tuple[list[Best], dict[int, Infeasible]]:
    bests: list[Best] = []
    refused: dict[int, Infeasible] = {}
    for count in sorted(counts):
        there = first_nodes(cluster, count)
        try:
            bests.append(best_on(profiles, there, batch, found, sync, kind))
        except Infeasible as error:
            refused[count] = error
    return bests, refused


def choose(bests: Sequence[Best], allowed: Sequence[Best], goal: Goal, cluster: Cluster) -> Best:
    """Return the best layout by the goal, among the numbers of nodes that are allowed."""
    if goal != "knee":
        return min(allowed, key=lambda best: goal_cost(best, goal, cluster))
    knee = wasted_beyond(bests) or bests[-1].nodes
    return min(allowed, key=lambda best: abs(best.nodes - knee))


def goal_cost(best: Best, goal: Goal, cluster: Cluster) -> float:
    """Return what a training on these nodes takes of what the goal counts, up to a factor."""
    if goal == "greenest":
        return _joules(best, cluster)
    return (best.nodes if goal == "cheapest" else 1) / best.learned_per_second


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
            batch=best.estimate.batch,
            step_seconds=best.estimate.step_seconds,
            samples_per_second=best.samples_per_second,
            efficiency=best.learned_per_second / best.nodes / first,
        )
        for best in bests
    )


def _joules(best: Best, cluster: Cluster) -> float:
    found = step_joules(best.estimate, first_nodes(cluster, best.nodes))
    if found is None:
        raise PacelineError(
            f"nobody knows what power {cluster.device.name} draws, so no plan is the greenest",
            fix="write `watts`, its power limit, into [device] of the cluster's file",
        )
    return found * best.estimate.extra_samples * best.samples_times / best.estimate.batch
