"""The planner's answer: the chosen layout, the scaling curve, the alternatives and what would
help."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.plan.batch_search import BatchSearch
from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.engine_kind import Chosen, EngineKind
from paceline.plan.cost.node_kinds import first_nodes, node_kinds, node_speeds
from paceline.plan.cost.synchronization import extra_samples
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.limits import Limits
from paceline.plan.reasons import alternatives, helps
from paceline.plan.search.best_layout import Best, Profiles
from paceline.plan.search.finalists import simulated
from paceline.plan.search.infeasible import Infeasible
from paceline.plan.search.node_counts import Goal, bests_on, choose, curve, wasted_beyond
from paceline.plan.sync_choice import other_modes, sync_reason, sync_remarks
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.profile import Profile
from paceline.specs.plans.answer import Answer
from paceline.specs.plans.estimate import ScalingPoint
from paceline.specs.plans.plan import Plan
from paceline.specs.plans.sync import SyncSettings

BATCH_NORM_REMARK = (
    "batch normalization is planned per local batch (batch_norm = local); the planner does"
    " not know the cost of statistics over the global batch"
)
FINALISTS = 50
"""Layouts on the chosen nodes to simulate event by event."""
ABOVE_ALL = 1.005
"""Efficiency that is shown as more than 100 %."""
MOST_IN_TURN = 2048
"""Most micro-batches and chunks that a worker computes in turn; beyond, fill and drain do not
matter, and a simulation takes long."""


def answer(
    profiles: Profiles,
    cluster: Cluster,
    batches: Sequence[int],
    counts: Sequence[int],
    found: Fit,
    goal: Goal,
    limits: Limits,
    sync: SyncSettings | None = None,
    kind: EngineKind = PACELINE,
) -> tuple[Answer, Best]:
    """Search on each number of nodes, choose one by the goal, and give the reasons.

    With several `batches`, the batch is chosen, too: for the goal to the same loss, so `limits` has
    the length of the training. `sync`: a given synchronization mode; None: the planner chooses.
    """
    choice = None
    if len(batches) == 1:
        bests, refused = bests_on(profiles, cluster, batches[0], found, counts, sync, kind)
        picked = choose(bests, limits.allowed(bests), goal, cluster)
    else:
        by_batch, refused = _bests_by_batch(profiles, cluster, batches, found, counts, sync, kind)
        searched = BatchSearch(by_batch, goal, limits)
        bests, picked, choice = searched.frontier, searched.chosen, searched.said()
    best = _simulated(picked, found, limits)
    profile = profiles[best.precision]
    speeds = node_speeds(cluster, best.nodes, best.precision)
    settled: dict[str, Any] = {"batch_norm": "local"} if profile.batch_norm else {}
    settled |= {"speeds": speeds} if speeds else {}
    if settled:
        layout = best.estimate.layout.model_copy(update=settled)
        best = replace(best, estimate=best.estimate.model_copy(update={"layout": layout}))
    there = first_nodes(cluster, best.nodes)
    points = curve(bests)
    said = Answer(
        model=profile.name,
        engine=kind.title,
        engine_score=kind.score,
        engine_settings=_settings(best),
        parameters=profile.parameters,
        batch=best.estimate.batch,
        device=there.device.name,
        goal=goal,
        nodes=best.nodes,
        devices_per_node=cluster.devices_per_node,
        estimate=best.estimate,
        samples_per_second=best.estimate.samples_per_second,
        sequence=profile.sequence,
        currency=cluster.prices.currency if cluster.prices else "",
        mfu=best.estimate.mfu,
        sync_reason=sync_reason(best, found, asked=sync is not None),
        alternatives=(*other_modes(best), *alternatives(best, found)),
        curve=points,
        wasted_beyond=wasted_beyond(bests),
        too_few=max((count for count in counts if count < bests[0].nodes), default=None),
        helps=helps(best, profiles, there, found, sync, best.kind),
        batches=choice,
        scored=sum(each.layouts_scored for each in bests) * len(profiles),
        uncounted_operators=profile.uncounted_operators,
        remarks=(
            *cluster.remarks,
            *([best.kind.remark] if best.kind.remark else []),
            *sync_remarks(best),
            *([BATCH_NORM_REMARK] if profile.batch_norm else []),
            *_skipped_remarks(refused, bests[0].nodes),
            *_efficiency_remarks(points),
            *_uncounted_remarks(profile),
            *_mixed_remarks(cluster, best.nodes, best.precision),
        ),
    )
    return said, best


def _settings(best: Best) -> str:
    """Return the engine's own settings for the chosen layout."""
    steps = best.found.steps.take(np.array([0]))
    return best.kind.settings(
        Chosen(steps.layouts, best.estimate.batch, best.precision, steps.profile)
    )


def _bests_by_batch(
    profiles: Profiles,
    cluster: Cluster,
    batches: Sequence[int],
    found: Fit,
    counts: Sequence[int],
    sync: SyncSettings | None,
    kind: EngineKind,
) -> tuple[list[list[Best]], dict[int, Infeasible]]:
    """Return the best layouts of each batch that has one, and the nodes that have none at all."""
    by_batch: list[list[Best]] = []
    refused: dict[int, Infeasible] = {}
    error: PacelineError | None = None
    for batch in batches:
        try:
            bests, reasons = bests_on(profiles, cluster, batch, found, counts, sync, kind)
        except PacelineError as nothing:
            error = error or nothing
            continue
        by_batch.append(bests)
        refused |= reasons
    if error is not None and not by_batch:
        raise error
    reached = {best.nodes for bests in by_batch for best in bests}
    return by_batch, {nodes: why for nodes, why in refused.items() if nodes not in reached}


def _simulated(best: Best, found: Fit, limits: Limits) -> Best:
    """Simulate the best layouts event by event, and rank them by the result.

    If the best one has too many micro-batches, the closed form stays; if the new one would miss
    the limits, the order stays.
    """
    scored = best.found
    layouts = scored.steps.layouts
    in_turn = layouts.micro_batches(scored.steps.batch) * layouts.chunks
    short = in_turn[:FINALISTS] <= MOST_IN_TURN
    number = int(np.sum(np.cumprod(short)))
    if not number:
        return best
    few = scored.steps.take(np.arange(number))
    seconds = np.array([each.seconds for each in simulated(few, found.model(few).numbers)])
    learning = seconds * extra_samples(few.engine.sync, few.layouts.replicas)
    places = np.append(np.argsort(learning, kind="stable"), np.arange(number, len(scored.seconds)))
    ranked = replace(scored, steps=scored.steps.take(places), seconds=scored.seconds[places])
    (estimate,) = ranked.best(found, 1, best.precision)
    updated = estimate.model_copy(update={"simulated_seconds": float(seconds[places[0]])})
    chosen = replace(best, found=ranked, estimate=updated)
    if limits.keeps(chosen):
        return chosen
    own = best.estimate.model_copy(update={"simulated_seconds": float(seconds[0])})
    return replace(best, estimate=own)


def _skipped_remarks(refused: Mapping[int, Infeasible], fewest: int) -> list[str]:
    """Return a sentence on each kind of reason that left out more nodes than the fewest."""
    kinds: dict[type[Infeasible], list[int]] = {}
    for nodes, reason in refused.items():
        if nodes > fewest:
            kinds.setdefault(type(reason), []).append(nodes)
    return [
        f"left out: {', '.join(f'{each:,}' for each in counts)} nodes: {refused[counts[0]].problem}"
        for counts in kinds.values()
    ]


def _efficiency_remarks(points: Sequence[ScalingPoint]) -> list[str]:
    """Return a sentence on efficiencies above 100 %."""
    above = [f"{each.nodes:,}" for each in points if each.efficiency > ABOVE_ALL]
    if not above:
        return []
    return [
        f"efficiency above 100 % on {', '.join(above)} nodes: the layouts possible on"
        f" {points[0].nodes:,} are slower per device, because they must divide the batch and fit"
        " into memory"
    ]


def _uncounted_remarks(profile: Profile) -> list[str]:
    """Return a sentence on operators without a FLOP count, and on what their time is taken from."""
    if not profile.uncounted_operators:
        return []
    if profile.measured_on is not None:
        time = f"their time is part of the times measured on {profile.measured_on}"
    elif profile.uncounted_on is not None:
        time = (
            f"measured on this machine's {profile.uncounted_on} and multiplied by"
            f" {profile.uncounted_scale:.2g}, the ratio of the {profile.uncounted_scaled_by}; a"
            " rough figure"
        )
    else:
        time = "their time is left out, so the step time is a lower bound"
    names = ", ".join(profile.uncounted_operators)
    return [f"operators without a FLOP count: {names}; {time}; FLOPs and MFU leave them out"]


def _mixed_remarks(cluster: Cluster, nodes: int, precision: str) -> list[str]:
    """Return a sentence on nodes of several kinds."""
    kinds = node_kinds(cluster, nodes)
    if len(kinds) == 1:
        return []
    fastest = max(device.matmul_rate(precision) for device, _ in kinds)
    said = " and ".join(
        f"{count:,} with {device.name} (speed {device.matmul_rate(precision) / fastest:.2f})"
        for device, count in kinds
    )
    return [
        f"nodes of several kinds: {said}, in this order; replicas and shards get samples by these"
        " speeds, which the plan's file has"
    ]


def plan_of(said: Answer) -> Plan:
    """Return the plan for `run` and `submit`."""
    return Plan(
        layout=said.estimate.layout,
        sync=said.estimate.sync,
        nodes=said.nodes,
        devices_per_node=said.devices_per_node,
        estimate=said.estimate,
        rejected=said.alternatives,
    )
