"""What interrupted a run and what its checkpoints took, in figures and in words."""

from collections.abc import Sequence
from typing import Literal

from paceline.report.drawing import units
from paceline.report.reading.merged_generations import Interruption
from paceline.report.reading.run_state import RunState
from paceline.specs import NotSaved, Saved, Source
from paceline.specs.base import Spec


class InterruptionFigures(Spec):
    """An end of training that was not the end of the run."""

    time: float
    """When training last got on, in Unix seconds."""
    cause: str
    workers_before: int | None
    workers_after: int | None
    """Unset before the run was resumed, like all that follows."""
    reached_step: int
    """The last step before it that is known of."""
    resumed_step: int | None
    """The step that the next start went on from; 0 without a checkpoint."""
    steps_again: int | None
    """Steps that had to be taken again."""
    away_seconds: float | None
    """How long nothing was trained."""


class RegroupFigures(InterruptionFigures):
    """One after which the workers that were left went on inside their living processes."""

    source: Source
    """Where they have their state from."""
    regroup_seconds: float
    """Of the time away, what the regroup itself took on worker 0."""


class CheckpointFigures(Spec):
    """What the checkpoints of a run took."""

    count: int
    """Complete checkpoints of all starts, whether they are still kept or not."""
    last_step: int | None
    bytes: int
    """The size of the last one."""
    unchanged_bytes: int
    """Of the last one, what worker 0 found unchanged and did not write again."""
    write_seconds: float | None
    """From the edge of the step until one was complete, while training went on; the mean."""
    stall_seconds: float
    """How long training stood still for all of them, on worker 0."""
    stall_share: float | None
    """This over the time of all steps, also of those that were taken again."""


class TroubleFigures(Spec):
    """A checkpoint that could not be written, or not be trusted."""

    kind: Literal["not_saved", "damaged"]
    time: float
    generation: int
    step: int
    worker: int | None
    """Which worker could not write."""
    message: str
    """The file and the cause."""


def interruption_figures(state: RunState) -> list[RegroupFigures | InterruptionFigures]:
    """Every interruption, the first one first."""
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
    """The checkpoints of all starts together."""
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
    """All that went wrong with checkpoints, in the order of the starts."""
    found = state.trouble
    # Worker 0 cannot complete what another could not write, and says so: a consequence.
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


def checkpoint_sentence(figures: CheckpointFigures) -> str:
    """How many there were, how large, and what they cost; nothing when there were none."""
    if figures.last_step is None or figures.write_seconds is None:
        return ""
    many = figures.count > 1
    words = (
        f"{units.count(figures.count, 'checkpoint')}, {'the last' if many else 'it is'} of step"
        f" {figures.last_step:,} with {units.size(figures.bytes)}."
        f" {'Each' if many else 'It'} was complete after {units.duration(figures.write_seconds)}"
        f"{' on average' if many else ''}, while training went on"
    )
    if figures.stall_seconds:
        words += f"; training stood still for {units.duration(figures.stall_seconds)}"
        words += " in all" * many
        if figures.stall_share is not None:
            words += f", {units.percent(figures.stall_share)} of its time"
    words += "."
    if figures.unchanged_bytes and figures.bytes:
        share = figures.unchanged_bytes / figures.bytes
        words += (
            f" Of the last one at least {units.size(figures.unchanged_bytes)}"
            f" ({units.percent(share)}) had not changed and was taken over from the one before."
        )
    return words


def resumed_sentence(interruptions: Sequence[Interruption]) -> str:
    """How the run came back from its last restart; nothing when there was none."""
    if not interruptions:
        return ""
    last = interruptions[-1]
    if last.resumed is None:
        return f"interrupted at step {last.reached} ({last.cause}); not resumed yet"
    where = f"resumed at step {last.resumed}" if last.resumed else "begun again at step 1"
    return f"{where} after {_which(len(interruptions))} ({last.cause})"


def interruptions_words(found: Sequence[InterruptionFigures]) -> str:
    """How many there were, and how many of them needed no restart."""
    words = units.count(len(found), "interruption")
    regroups = sum(isinstance(each, RegroupFigures) for each in found)
    if regroups == len(found):
        return f"{words} without a restart"
    return f"{words}, {regroups:,} of them without a restart" if regroups else words


def source_words(source: Source) -> str:
    """Where the workers of a generation have their state from."""
    return {
        "members": "the members",
        "peers": "copies in peers' memory",
        "checkpoint": "a checkpoint",
        "beginning": "the beginning",
    }[source]


def _which(number: int) -> str:
    return "an interruption" if number == 1 else f"interruption {number}"
