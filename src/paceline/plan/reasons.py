"""Reasons for the choice: the alternatives and why they lost, and changes that would help."""

from collections.abc import Callable

import numpy as np

from paceline.plan.calibration.calibrate import Fit
from paceline.plan.cost.engine_kind import EngineKind
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.search.best_layout import Best, Profiles, best_on
from paceline.plan.search.infeasible import Infeasible
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.plans.estimate import Alternative, Estimate, Help
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import SyncSettings

PARTS = {
    "compute": "computation",
    "recompute": "recomputation",
    "tensor": "tensor-parallel all-reduces",
    "transfer": "pipeline transfers",
    "bubble": "pipeline bubble",
    "data": "communication of gradients and weights",
    "optimizer": "optimizer",
    "host": "host overhead",
    "jitter": "waiting for the slowest worker",
}
"""The parts of a step, in words."""
WORTH_SAYING = 1.03
"""Speed-up below which a change is not reported."""

_KINDS: dict[str, Callable[[Layouts], np.ndarray[tuple[int], np.dtype[np.bool_]]]] = {
    "replicas only": lambda each: (each.replicas == each.devices) & (each.context == 1),
    "shards only": lambda each: (each.shards == each.devices) & (each.context == 1),
    "replicas of shards": lambda each: (
        (each.data_workers == each.devices) & (each.shards > 1) & (each.replicas > 1)
    ),
    "tensor parallel": lambda each: (each.tensor > 1) & (each.pipeline == 1),
    "pipeline": lambda each: (each.pipeline > 1) & (each.tensor == 1),
    "tensor and pipeline": lambda each: (each.pipeline > 1) & (each.tensor > 1),
    "context parallel": lambda each: each.context > 1,
    "expert parallel": lambda each: each.expert > 1,
    "no recomputation": lambda each: each.recompute == RECOMPUTE.index("none"),
}


def words(layout: Layout) -> str:
    """Describe a layout: `2 replicas x 4 shards, micro-batch 2, bf16`."""
    degrees = [
        f"{number} {name}"
        for name in ("replicas", "shards", "context", "tensor", "pipeline")
        if (number := getattr(layout, name)) > 1
    ]
    more = [f"experts over {layout.expert} workers"] if layout.expert > 1 else []
    more += [f"micro-batch {layout.micro_batch}"] if layout.micro_batch else []
    more.append(layout.precision)
    if layout.pipeline > 1 and layout.schedule != "1f1b":
        more.append(layout.schedule)
    if layout.recompute != "none":
        more.append(f"recompute {layout.recompute}")
    if layout.sequence:
        more.append("sequence parallel")
    return ", ".join([" x ".join(degrees) or "1 worker", *more])


def alternatives(best: Best, found: Fit) -> tuple[Alternative, ...]:
    """Return the best layout of every kind that was not chosen, with the reason."""
    layouts = best.found.steps.layouts
    others: list[Alternative] = []
    for what, is_kind in _KINDS.items():
        places = np.flatnonzero(is_kind(layouts))
        if len(places) and not places[0]:
            continue  # the chosen layout is of this kind
        if len(places):
            others += _slower(best, found, what, int(places[0]))
        else:
            others += _too_large(best, what, np.flatnonzero(is_kind(best.found.too_large)))
    return tuple(sorted(others, key=lambda each: each.step_seconds or np.inf))


def _slower(best: Best, found: Fit, what: str, place: int) -> list[Alternative]:
    (estimate,) = best.found.chosen(found, np.array([place]), best.precision)
    return [
        Alternative(
            what=what,
            layout=estimate.layout,
            sync=estimate.sync,
            step_seconds=estimate.step_seconds.value,
            peak_bytes=estimate.peak_bytes.value,
            why=_lost(best.estimate, estimate),
        )
    ]


def _lost(chosen: Estimate, other: Estimate) -> str:
    """Name the part of the step that grew most."""
    more = {name: other.seconds[name] - chosen.seconds[name] for name in chosen.seconds}
    part = max(more, key=lambda name: more[name])
    if more[part] <= 0:
        return "equally fast"
    share = more[part] / chosen.step_seconds.value
    if share < 0.005:  # would be shown as 0 %
        return "equally fast"
    return f"{_part(part, other.layout)}: {share:.0%} of a step more"


def _part(name: str, layout: Layout) -> str:
    """Return a part of a step in words; that inside blocks by what communicates there."""
    if name != "tensor" or layout.context == layout.expert == 1:
        return PARTS[name]
    inside = {
        "slices": layout.tensor,
        "contexts": layout.context,
        "experts": layout.expert,
    }
    return f"communication of {' and '.join(each for each in inside if inside[each] > 1)}"


def _too_large(
    best: Best, what: str, places: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> list[Alternative]:
    if not len(places):
        return []
    held = best.found.too_large_held[places]
    smallest = int(places[int(np.argmin(held))])
    steps = best.found.steps
    room = steps.cluster.device.memory_bytes
    at_most = float(held.min()) * steps.engine.memory_high
    return [
        Alternative(
            what=what,
            layout=best.found.too_large.layout(smallest, best.precision),
            sync=best.estimate.sync,
            peak_bytes=float(held.min()),
            why=f"may need {at_most / 1e9:.1f} GB of {room / 1e9:.1f} GB on a device",
        )
    ]


def bound(estimate: Estimate) -> str:
    """Describe the parts of a step, the largest first."""
    total = estimate.step_seconds.value
    parts = sorted(estimate.seconds.items(), key=lambda item: -item[1])
    said = [
        f"{_part(name, estimate.layout)} {seconds / total:.0%}"
        for name, seconds in parts
        if seconds > 0.02 * total
    ]
    return ", ".join(said)


def helps(
    best: Best,
    profiles: Profiles,
    cluster: Cluster,
    found: Fit,
    sync: SyncSettings | None,
    kind: EngineKind,
) -> tuple[Help, ...]:
    """Return the speed-up from doubling each resource, with the layout that is then best."""
    batch = best.estimate.batch
    device = cluster.device
    changes: dict[str, tuple[Cluster, int]] = {
        "a network twice as fast": (_faster(cluster, "between"), batch),
        "links in a node twice as fast": (_faster(cluster, "inside"), batch),
        "twice the memory": (
            cluster.model_copy(
                update={
                    "device": device.model_copy(update={"memory_bytes": 2 * device.memory_bytes})
                }
            ),
            batch,
        ),
        "twice the batch": (cluster, 2 * batch),
    }
    if cluster.tiers:
        without = cluster.model_copy(update={"tiers": ()})
        changes["switches without oversubscription"] = without, batch
    helps = []
    for change, (changed, samples) in changes.items():
        try:
            then = best_on(profiles, changed, samples, found, sync, kind)
        except Infeasible:
            continue
        # In samples per second: what the plan's batch needs more of them changes nothing here.
        faster = then.learned_per_second / (best.learned_per_second * best.samples_times)
        if faster > WORTH_SAYING:
            helps.append(Help(change=change, faster=faster))
    return tuple(sorted(helps, key=lambda each: -each.faster))


def _faster(cluster: Cluster, tier: str) -> Cluster:
    """Return the cluster with links of one tier twice as fast, measured ones included."""
    link = getattr(cluster, tier)
    quick = link.model_copy(update={"bytes_per_second": 2 * link.bytes_per_second})
    measured = tuple(
        each.model_copy(update={"bytes_per_second": 2 * each.bytes_per_second})
        if (each.members > each.members_per_node) == (tier == "between")
        else each
        for each in cluster.collectives
    )
    return cluster.model_copy(update={tier: quick, "collectives": measured})
