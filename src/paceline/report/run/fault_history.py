"""All faults of a run in order: the worker, the kind, the reason and the cost of each."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal

from paceline.report.reading.merged_generations import Interruption, first_failure
from paceline.report.reading.run_state import RunState
from paceline.report.run.goodput import GoodputFigures, goodput_figures, refused_step_seconds
from paceline.report.run.interruption_figures import trouble_figures
from paceline.specs import (
    Failed,
    Lost,
    Refused,
    Regrouped,
    SickDevice,
    Slow,
    Source,
    units,
    worker_in_words,
)
from paceline.specs.base import Spec

What = Literal[
    "lost", "failed", "regrouped", "interrupted", "slow", "refused", "not_saved", "damaged"
]


class FaultEvent(Spec):
    """A fault, or how the run recovered from it."""

    time: float
    """Unix seconds, by the clock of the node that wrote it."""
    generation: int
    what: What
    step: int | None
    """The last known step before it; for `regrouped`, the step to continue from."""
    who: str
    why: str
    lost_seconds: float | None = None
    """Time without training, in repeated steps, or in a refused step; None if unknown."""
    source: Source | None = None
    """Where the workers restored their state from."""
    joined: int = 0
    """Number of workers that joined."""


class FaultFigures(Spec):
    """The faults of a run, and its goodput."""

    goodput: GoodputFigures
    workers: int
    planned_workers: int
    lost_workers: int
    """Number of times that a worker was lost."""
    joined_workers: int
    regroups: int
    slow_workers: int
    """Number of times that a worker was reported as a straggler."""
    refused_steps: int
    steps_again: int
    events: list[FaultEvent]
    """In chronological order."""

    @property
    def seen(self) -> bool:
        """Whether the run survived a fault without a restart."""
        return bool(self.lost_workers or self.regroups or self.slow_workers or self.refused_steps)


def fault_figures(state: RunState) -> FaultFigures:
    """Return the faults of a run so far."""
    lost, regroups = _lost(state), state.regroups
    return FaultFigures(
        goodput=goodput_figures(state),
        workers=state.number_of_workers or state.job.workers,
        planned_workers=state.job.workers,
        lost_workers=len(lost),
        joined_workers=sum(len(each.joined) for each in regroups),
        regroups=len(regroups),
        slow_workers=sum(isinstance(each, Slow) for each in state.faults),
        refused_steps=sum(isinstance(each, Refused) for each in state.faults),
        steps_again=sum(each.lost_steps or 0 for each in state.interruptions),
        events=sorted(
            _events(state, lost),
            key=lambda each: (each.generation, each.time, each.what, each.who),
        ),
    )


def _events(state: RunState, lost: dict[tuple[int, int], Lost]) -> Iterator[FaultEvent]:
    reached = _Reached(state)
    for one in lost.values():
        yield _event(one, "lost", reached.at(one), _worker(one.rank, one.lost_node), one.why)
    for failure in _failures(state):
        if (failure.generation, failure.rank) not in lost:
            why = (failure.message.splitlines() or ["failed"])[0]
            who = _worker(failure.rank, failure.node)
            yield _event(failure, "failed", reached.at(failure), who, why)
    for each in state.interruptions:
        yield _interrupted(each)
    cost = refused_step_seconds(state)
    for fault in state.faults:
        if isinstance(fault, Slow):
            yield _slow(fault)
        elif isinstance(fault, Refused):
            why = f"{fault.what}: {fault.message}"
            found = _event(fault, "refused", fault.step, _workers(fault.ranks), why)
            yield found.model_copy(update={"lost_seconds": cost})
    for bad in trouble_figures(state):
        yield FaultEvent(
            time=bad.time,
            generation=bad.generation,
            what=bad.kind,
            step=bad.step,
            who="a checkpoint" if bad.worker is None else f"worker {bad.worker}",
            why=bad.message,
        )


def _event(
    event: Lost | Failed | Slow | Refused, what: What, step: int | None, who: str, why: str
) -> FaultEvent:
    return FaultEvent(
        time=event.time, generation=event.generation, what=what, step=step, who=who, why=why
    )


def _slow(fault: Slow) -> FaultEvent:
    why = f"{fault.times:.2f} × as long as the median worker: {fault.why}"
    return _event(fault, "slow", fault.step, _worker(fault.rank, fault.slow_node), why)


def _interrupted(each: Interruption) -> FaultEvent:
    regrouped = each.regrouped
    if regrouped is not None:
        return FaultEvent(
            time=regrouped.time,
            generation=regrouped.generation,
            what="regrouped",
            step=regrouped.step,
            who=_members(regrouped),
            why=regrouped.why,
            lost_seconds=each.lost_seconds,
            source=regrouped.source,
            joined=len(regrouped.joined),
        )
    source: Source | None = None
    if each.resumed is not None:
        source = "checkpoint" if each.resumed else "beginning"
    return FaultEvent(
        time=each.at,
        generation=each.generation,
        what="interrupted",
        step=each.reached,
        who="the run",
        why=each.cause,
        lost_seconds=each.lost_seconds,
        source=source,
    )


def _members(event: Regrouped) -> str:
    words = units.count(event.workers, "worker")
    if event.joined:
        words += f", {len(event.joined):,} of them new"
    return f"{words}, {units.count(event.idle, 'spare')}" if event.idle else words


def _worker(rank: int, node: str) -> str:
    return f"{worker_in_words(rank)} on {node}"


def _workers(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8:,} more" * (len(ranks) > 8)
    return f"worker{'s' * (len(ranks) != 1)} {names}{more}" if ranks else "unknown workers"


def _lost(state: RunState) -> dict[tuple[int, int], Lost]:
    """Return losses by generation and rank: if worker 0 is lost, two workers may report others.

    The others see only that a process ended; if its device failed, the reason is that.
    """
    found: dict[tuple[int, int], Lost] = {}
    for each in state.faults:
        if isinstance(each, Lost):
            key = each.generation, each.rank
            found[key] = min(each, found.get(key, each), key=lambda one: (one.time, one.node))
    for each in state.faults:
        if isinstance(each, SickDevice) and (sick := found.get((each.generation, each.rank))):
            why = f"{each.device} failed: {each.why}"
            found[sick.generation, sick.rank] = sick.model_copy(update={"why": why})
    return found


def _failures(state: RunState) -> Iterator[Failed]:
    """Yield the first failure of each generation that was not a consequence of another."""
    by_generation: dict[int, list[Failed]] = {}
    for failure in (*state.earlier_failures, *state.failures):
        by_generation.setdefault(failure.generation, []).append(failure)
    for failures in by_generation.values():
        first = first_failure(failures)
        if first is not None and not first.lost_peer:
            yield first


class _Reached:
    """The step that the run had reached when a generation ended."""

    def __init__(self, state: RunState) -> None:
        self._ends = state.interruptions
        self._generations = [each.generation for each in self._ends]
        self._last = state.step[-1] if state.step else None

    def at(self, event: Lost | Failed) -> int | None:
        place = bisect_left(self._generations, event.generation)
        return self._ends[place].reached if place < len(self._ends) else self._last


def source_words(source: Source) -> str:
    """Return in words where a generation's workers restored their state from."""
    return {
        "members": "survivors",
        "peers": "peer copies",
        "checkpoint": "a checkpoint",
        "beginning": "the beginning",
    }[source]


def survived_faults(state: RunState) -> bool:
    """Return whether the run survived a fault without a restart."""
    return bool(state.faults or state.regroups)


def planned_words(state: RunState, workers: int) -> str:
    """Return `4 planned, ` if regroups changed the number of workers from the plan's."""
    changed = state.regroups and workers != state.job.workers
    return f"{state.job.workers:,} planned, " if changed else ""
