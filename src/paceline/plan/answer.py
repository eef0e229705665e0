"""All that a plan says: the choice, the curve, the others and what would help."""

from collections.abc import Callable, Sequence

from paceline.plan.calibrate import Fit
from paceline.plan.reasons import alternatives, helps
from paceline.plan.scaling import Best, Goal, Profiles, bests_on, choose, curve, wasted_beyond
from paceline.specs.cluster import Cluster
from paceline.specs.estimate import Answer
from paceline.specs.plan import Plan


def answer(
    profiles: Profiles,
    cluster: Cluster,
    batch: int,
    counts: Sequence[int],
    found: Fit,
    goal: Goal,
    deadline: Callable[[Best], bool],
) -> tuple[Answer, Best]:
    """Search on each number of nodes, choose one by the goal, and say why."""
    bests = bests_on(profiles, cluster, batch, found, counts)
    best = choose(bests, goal, cluster, deadline)
    profile = profiles[best.precision]
    there = cluster.model_copy(update={"nodes": best.nodes})
    said = Answer(
        model=profile.name,
        parameters=profile.parameters,
        batch=batch,
        device=cluster.device.name,
        goal=goal,
        nodes=best.nodes,
        devices_per_node=cluster.devices_per_node,
        estimate=best.estimate,
        alternatives=alternatives(best, found),
        curve=curve(bests),
        wasted_beyond=wasted_beyond(bests),
        too_few=max((count for count in counts if count < bests[0].nodes), default=None),
        helps=helps(best, profiles, there, found),
        scored=sum(each.found.scored for each in bests) * len(profiles),
        remarks=cluster.remarks,
    )
    return said, best


def plan_of(said: Answer) -> Plan:
    """The plan that `run` and `submit` take."""
    return Plan(
        layout=said.estimate.layout,
        nodes=said.nodes,
        devices_per_node=said.devices_per_node,
        estimate=said.estimate,
        rejected=said.alternatives,
    )
