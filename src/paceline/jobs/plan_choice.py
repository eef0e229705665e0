"""The plan of a run: its plan file or its previous plan, changed by the options that were given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.specs import Layout, PacelineError, Plan, SyncSettings


def chosen_plan(
    file: Path | None,
    workers: int | None,
    default_workers: int,
    given: Mapping[str, Any],
    saving: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the file's plan, changed by the options, for a number of workers.

    If the number of replicas is not given, it is as large as the workers allow. Raise if the
    numbers contradict each other.
    """
    plan = Plan.read(file) if file else Plan()
    plan = plan.model_copy(update={"saving": plan.saving.model_copy(update=saving or {})})
    plan, given = _with_the_rest(plan, given)
    layout = plan.layout.model_copy(update=given)
    wanted = None
    if "replicas" not in plan.layout.model_fields_set | given.keys():
        wanted = workers or (default_workers if not given and file is None else layout.workers)
    layout = _fitted(layout, workers, wanted, whose=str(file or "the layout"))
    return _with_layout(plan, layout)


def another_layout(plan: Plan, workers: int | None, given: Mapping[str, Any]) -> Plan:
    """Return the plan of a resumed run, changed by the options, for a number of workers."""
    plan, given = _with_the_rest(plan, given)
    layout, wanted = plan.layout.model_copy(update=given), None
    if "replicas" not in given and (workers is not None or given):
        layout, wanted = layout.model_copy(update={"replicas": 1}), workers or plan.layout.workers
    more = "; a checkpoint fits any layout"
    layout = _fitted(layout, workers, wanted, whose="the layout", more=more)
    if layout.workers != plan.layout.workers and layout.speeds is not None:
        layout = layout.model_copy(update={"speeds": None})
    return _with_layout(plan, layout)


def _with_the_rest(plan: Plan, given: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
    """Return the plan with the given `sync` and `faults`, and the remaining layout options."""
    layout = {name: value for name, value in given.items() if name not in ("sync", "faults")}
    if "faults" in given:
        plan = plan.model_copy(update={"faults": plan.faults.changed(given["faults"])})
    if "sync" in given:
        others = {"estimate": None, "rejected": ()}
        plan = plan.model_copy(update={"sync": SyncSettings.parse(given["sync"]), **others})
    return plan, layout


def _with_layout(plan: Plan, layout: Layout) -> Plan:
    """Return the plan with a layout; drop predictions for the old layout."""
    plan.sync.check(layout)
    sync, estimate = plan.sync.for_replicas(layout.replicas), plan.estimate
    if sync != plan.sync:
        estimate = estimate and estimate.model_copy(update={"sync": sync})
        plan = plan.model_copy(update={"sync": sync, "estimate": estimate})
    if layout == plan.layout:
        return plan
    others = {"estimate": None, "rejected": (), "nodes": None, "devices_per_node": None}
    return plan.model_copy(update={"layout": layout, **others})


def _fitted(
    layout: Layout, workers: int | None, wanted: int | None, *, whose: str, more: str = ""
) -> Layout:
    """Return the layout with as many replicas as fit on `wanted` workers, or unchanged if None.

    Raise if it does not have `workers` workers.
    """
    others = [name for name in ("shards", "tensor", "pipeline") if getattr(layout, name) > 1]
    degrees = " x ".join(f"{getattr(layout, name)} {name}" for name in ("replicas", *others))
    if wanted is not None:
        replicas, left = divmod(wanted, layout.workers)
        if left:
            raise PacelineError(
                f"{wanted} workers cannot be divided into copies of {layout.workers} ({degrees})",
                fix=f"use a multiple of {layout.workers} workers, or other numbers of these{more}",
            )
        layout = layout.model_copy(update={"replicas": replicas})
    if workers is not None and workers != layout.workers:
        raise PacelineError(
            f"{workers} workers were asked for, but {whose} plans {layout.workers}: {degrees}",
            fix="make them agree, or leave one of them out",
        )
    layout.check()
    return layout
