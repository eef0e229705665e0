"""The figures that every run has; sections add their own."""

import math
import re
from collections.abc import Iterable
from statistics import median

from paceline.report.reading.run_state import RunState, Status
from paceline.specs import Plan
from paceline.specs.base import Spec


class SyncChange(Spec):
    """A synchronization mode that `auto` chose during the run."""

    after_step: int
    sync: str
    """In the syntax of `--sync`."""
    why: str


class Summary(Spec):
    """The figures that every run has, as fields of `--json`."""

    name: str
    status: Status
    steps: int
    """Optimizer steps taken; a step that was repeated after an interruption counts once, here and
    in all other figures."""
    planned_steps: int | None
    finished_early: str | None
    """Why the run finished before its planned steps, such as a validation without progress."""
    samples: int
    seconds: float
    """From the beginning of the first step to the end of the last."""
    samples_per_second: float
    final_loss: float | None
    """Mean of the last step over its global batch; None before the first step and if the loss is
    NaN or infinite."""
    first_loss: float | None
    nonfinite_losses: int
    """Number of steps with a NaN or infinite loss."""
    workers: int
    nodes: int
    hosts: list[str]
    startup_seconds: float | None
    """From the start of the process to the first step, on the slowest node."""
    median_step_seconds: float | None
    flops_share: float | None
    """Model FLOPs utilization (MFU): FLOPs of the matrix products of forward and backward, over the
    devices' peak; None if the plan lacks either."""
    sync: str
    """The plan's synchronization mode, in the syntax of `--sync`."""
    sync_changes: list[SyncChange]
    """The choices of `auto`, in order."""
    batch: int | None
    """Samples in a global batch."""
    parameters: int | None
    device: str | None
    backend: str | None
    interface: str | None
    restarts: int
    unreadable_lines: int
    """Truncated lines in the event files."""


def summary(state: RunState) -> Summary:
    """Return the figures of a run over all its starts; the workers are those of the last start."""
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
        finished_early=done.reason if done else None,
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
        flops_share=flops_share(state.plan, workers, rate),
        sync=state.plan.sync.short(),
        sync_changes=[
            SyncChange(after_step=each.step, sync=each.sync.short(), why=each.why)
            for each in state.sync_changes
        ],
        batch=first.batch if first else None,
        parameters=first.parameters if first else None,
        device=_all(started.device for started in state.started),
        backend=_all(started.backend for started in state.started),
        interface=_all(started.interface for started in state.started),
        restarts=state.restarts,
        unreadable_lines=state.unreadable_lines,
    )


def flops_share(plan: Plan, devices: int, samples_per_second: float) -> float | None:
    """Return the model FLOPs utilization, or None if the plan lacks FLOPs or the peak."""
    said = plan.estimate
    if said is None or said.layout.precision != plan.layout.precision or not samples_per_second:
        return None
    if said.flops_per_sample is None or said.device_peak_flops is None:
        return None
    return said.flops_per_sample * samples_per_second / (devices * said.device_peak_flops)


def by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _all(values: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(values))) or None
