"""The stages of a batch that grows: how many nodes pay in each of them."""

from collections.abc import Sequence
from contextlib import suppress

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.engine_kind import EngineKind
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.search.best_layout import Profiles
from paceline.plan.search.node_counts import Goal, bests_on, choose
from paceline.specs import Cluster, PacelineError, StageOption, SyncSettings


def stage_options(
    profiles: Profiles,
    cluster: Cluster,
    batches: Sequence[int],
    counts: Sequence[int],
    found: Fit,
    goal: Goal,
    sync: SyncSettings | None,
    kind: EngineKind = PACELINE,
    *,
    planned: int,
) -> tuple[StageOption, ...]:
    """Search on each number of nodes for each batch; leave out one that no number can divide.

    `planned`: the nodes of the plan.
    """
    options = []
    for batch in batches:
        with suppress(PacelineError):
            bests, _ = bests_on(profiles, cluster, batch, found, counts, sync, kind)
            best = choose(bests, bests, goal, cluster)
            there = [each.estimate.step_seconds.value for each in bests if each.nodes == planned]
            options.append(
                StageOption(
                    batch=batch,
                    nodes=best.nodes,
                    workers=best.estimate.layout.workers,
                    step_seconds=best.estimate.step_seconds.value,
                    planned_step_seconds=there[0] if there else None,
                )
            )
    return tuple(options)
