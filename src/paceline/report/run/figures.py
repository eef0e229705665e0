"""The figures of a run, for people's tables and for `paceline report RUN --json`."""

import math
import re
from collections.abc import Iterable
from statistics import median
from typing import Any

from paceline.report.reading.run_state import RunState, Status
from paceline.report.run.fault_history import FaultFigures, fault_figures
from paceline.report.run.interruptions import (
    CheckpointFigures,
    InterruptionFigures,
    RegroupFigures,
    TroubleFigures,
    checkpoint_figures,
    interruption_figures,
    trouble_figures,
)
from paceline.report.run.prediction import PredictionFigures, prediction_figures
from paceline.report.run.step_breakdown import Breakdown, breakdown
from paceline.report.run.traced_steps import TraceFigures, trace_figures
from paceline.report.run.usage import UsageFigures, flops_share, usage_figures
from paceline.specs import Cluster
from paceline.specs.base import Spec


class Agreement(Spec):
    """A way in which replicas agreed from some step on."""

    after_step: int
    sync: str
    """As `--sync` takes it."""
    why: str


class Summary(Spec):
    """A run in figures; `--json` prints these fields."""

    name: str
    status: Status
    steps: int
    """Optimizer steps taken; one that was taken again after an interruption counts once, as it does
    in all that follows."""
    planned_steps: int | None
    samples: int
    seconds: float
    """From the beginning of the first step to the end of the last."""
    samples_per_second: float
    final_loss: float | None
    """The last step's mean over its global batch; unset before the first step and when the loss
    was not a finite number."""
    first_loss: float | None
    nonfinite_losses: int
    """Steps whose loss was NaN or infinite."""
    workers: int
    nodes: int
    hosts: list[str]
    startup_seconds: float | None
    """From the start of the process to the first step, of the slowest node."""
    median_step_seconds: float | None
    prediction: PredictionFigures | None
    """What the plan said beside this; unset where no plan did, or the run does not follow it."""
    breakdown: Breakdown | None
    """Where the time of a step goes; unset before the first step."""
    flops_share: float | None
    """The model's matrix products, forward and backward, by what the devices could compute (model
    FLOPs utilisation); unset where no plan says both."""
    usage: UsageFigures | None
    """Cores, memory, network, energy; unset where no node has written of it."""
    trace: TraceFigures | None
    """What communication took in the steps that workers recorded; unset where none did."""
    sync: str
    """How replicas agree by the plan, as `--sync` takes it."""
    agreements: list[Agreement]
    """What `auto` has chosen, in its order."""
    batch: int | None
    """Samples in a global batch."""
    parameters: int | None
    device: str | None
    backend: str | None
    interface: str | None
    restarts: int
    interruptions: list[RegroupFigures | InterruptionFigures]
    faults: FaultFigures
    """What went wrong while the run went on and between its starts, and its goodput."""
    checkpoints: CheckpointFigures
    trouble: list[TroubleFigures]
    unreadable_lines: int
    """Lines in the event files that were cut off in the middle."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values that are valid JSON: no NaN, no infinities."""
        return self.model_dump(mode="json")


def summary(state: RunState, cluster: Cluster | None = None) -> Summary:
    """The figures of a run, from its first start to the newest; workers are those of the newest.

    `cluster` says what power and devices cost, and what is drawn where that was not measured.
    """
    done = state.finished
    seconds = done.seconds if done else math.fsum(state.seconds)
    samples = done.samples if done else sum(state.samples)
    steps = done.steps if done else len(state.step)
    rate = samples / seconds if seconds > 0 else 0.0
    first = min(state.started, key=lambda started: min(started.ranks, default=0), default=None)
    workers = state.number_of_workers if state.regroups else first and first.workers
    workers = workers or state.job.workers
    return Summary(
        name=state.job.name,
        status=state.status,
        steps=steps,
        planned_steps=state.planned_steps,
        samples=samples,
        seconds=seconds,
        samples_per_second=rate,
        final_loss=_finite(state.loss[-1]) if state.loss else None,
        first_loss=_finite(state.loss[0]) if state.loss else None,
        nonfinite_losses=sum(not math.isfinite(loss) for loss in state.loss),
        workers=workers,
        nodes=first.nodes if first else state.job.nodes,
        hosts=sorted({started.node for started in state.started}, key=by_number),
        startup_seconds=state.startup_seconds,
        median_step_seconds=median(state.seconds) if state.seconds else None,
        prediction=prediction_figures(state),
        breakdown=breakdown(state),
        flops_share=flops_share(state.plan, workers, rate),
        usage=usage_figures(state.usage, steps, samples, cluster),
        trace=trace_figures(state),
        sync=state.plan.sync.short(),
        agreements=[
            Agreement(after_step=each.step, sync=each.sync.short(), why=each.why)
            for each in state.agreements
        ],
        batch=first.batch if first else None,
        parameters=first.parameters if first else None,
        device=_all(started.device for started in state.started),
        backend=_all(started.backend for started in state.started),
        interface=_all(started.interface for started in state.started),
        restarts=state.restarts,
        interruptions=interruption_figures(state),
        faults=fault_figures(state),
        checkpoints=checkpoint_figures(state),
        trouble=trouble_figures(state),
        unreadable_lines=state.unreadable_lines,
    )


def by_number(name: str) -> list[tuple[int, str]]:
    """A sort key that puts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _all(values: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(values))) or None
