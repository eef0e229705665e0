"""Interruptions of a run and the cost of its checkpoints, in figures."""

from collections.abc import Sequence
from typing import Literal

from paceline.report.reading.merged_generations import Interruption
from paceline.report.reading.run_state import RunState
from paceline.specs import NotSaved, Saved, Source, units
from paceline.specs.base import Spec


class InterruptionFigures(Spec):
    """An end of training before the end of the run."""

    time: float
    """When training last made progress, in Unix seconds."""
    cause: str
    workers_before: int | None
    workers_after: int | None
    """None until the run resumes, as are all fields below except `reached_step`."""
    reached_step: int
    """The last known step before it."""
    resumed_step: int | None
    """The step that the next start continued from; 0 without a checkpoint."""
    steps_again: int | None
    """Number of repeated steps."""
    away_seconds: float | None
    """Time without training."""


class RegroupFigures(InterruptionFigures):
    """An interruption after which the survivors continued in their living processes."""

    source: Source
    """Where the workers restored their state from."""
    regroup_seconds: float
    """The part of `away_seconds` that the regroup itself took, on worker 0."""


class CheckpointFigures(Spec):
    """The cost of the checkpoints of a run."""

    count: int
    """Number of complete checkpoints of all starts, including those deleted since."""
    last_step: int | None
    bytes: int
    """Size of the last checkpoint."""
    unchanged_bytes: int
    """The part of the last checkpoint that worker 0 found unchanged and did not rewrite."""
    write_seconds: float | None
    """Mean time from the end of a step until its checkpoint is complete; training continues."""
    stall_seconds: float
    """Total time that checkpoints stalled training, on worker 0."""
    stall_share: float | None
    """`stall_seconds` over the time of all steps, including repeated ones."""


class TroubleFigures(Spec):
    """A checkpoint that could not be written or is damaged."""

    kind: Literal["not_saved", "damaged"]
    time: float
    generation: int
    step: int
    worker: int | None
    """The worker that could not write."""
    message: str
    """The file and the cause."""


def interruption_figures(state: RunState) -> list[RegroupFigures | InterruptionFigures]:
    """Return every interruption, in order."""
    return [_interruption(each) for each in state.interruptions]


def _interruption(each: Interruption) -> RegroupFigures | InterruptionFigures:
    known = InterruptionFigures(
        time=each.at,
        cause=each.cause,
        workers_before=each.workers,
        workers_after=each.workers_after,
        reached_step=each.reached,
        resumed_step=each.resumed,
        steps_again=each.lost_steps,
        away_seconds=each.away_seconds,
    )
    if each.regrouped is None:
        return known
    source, seconds = each.regrouped.source, each.regrouped.seconds
    return RegroupFigures(**known.model_dump(), source=source, regroup_seconds=seconds)


def checkpoint_figures(state: RunState) -> CheckpointFigures:
    """Return the cost of the checkpoints of all starts."""
    saved: Sequence[Saved] = state.checkpoints
    last = saved[-1] if saved else None
    stall, trained = sum(each.stall_seconds for each in saved), state.trained_seconds
    return CheckpointFigures(
        count=len(saved),
        last_step=last.step if last else None,
        bytes=last.bytes if last else 0,
        unchanged_bytes=last.linked_bytes if last else 0,
        write_seconds=sum(each.seconds for each in saved) / len(saved) if saved else None,
        stall_seconds=stall,
        stall_share=stall / trained if trained > 0 else None,
    )


def trouble_figures(state: RunState) -> list[TroubleFigures]:
    """Return all problems with checkpoints, in the order of the starts."""
    found = state.trouble
    # If another worker cannot write, worker 0 reports that it cannot commit: a consequence.
    echoes = {
        (each.generation, each.step, f"worker {each.rank}: {each.message}")
        for each in found
        if isinstance(each, NotSaved) and each.rank
    }
    return [
        TroubleFigures(
            kind=each.kind,
            time=each.time,
            generation=each.generation,
            step=each.step,
            worker=each.rank if isinstance(each, NotSaved) else None,
            message=each.message,
        )
        for each in found
        if (each.generation, each.step, each.message) not in echoes
    ]


def interruptions_words(found: Sequence[Interruption]) -> str:
    """Return the number of interruptions, and how many needed no restart."""
    words = units.count(len(found), "interruption")
    regroups = sum(each.regrouped is not None for each in found)
    if regroups == len(found):
        return f"{words} without a restart"
    return f"{words}, {regroups:,} of them without a restart" if regroups else words
