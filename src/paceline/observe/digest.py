"""Reduce a run's events to a few metrics, independent of the number of workers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paceline.observe.fault_counts import FaultCounts
from paceline.observe.generations import Generations
from paceline.observe.lapses import Lapses
from paceline.observe.metric_names import LOGGED, evaluated_metrics
from paceline.specs import (
    PARTS,
    PROTECTIONS,
    AnyEvent,
    Damaged,
    Degraded,
    Ended,
    Evaluated,
    Failed,
    Finished,
    Logged,
    Lost,
    NotSaved,
    Part,
    Refused,
    Regrouped,
    Restored,
    Saved,
    SickDevice,
    Slow,
    Started,
    Steps,
    Workers,
    WorkerState,
    worker_in_words,
)
from paceline.specs.runs.events import own_seconds

FIGURES: dict[str, str] = {
    "step": "Optimizer steps taken.",
    "loss": "Mean loss over a step's global batch.",
    "step_seconds": "Duration of a step.",
    "samples_per_second": "Samples trained per second.",
    "workers": "Workers that are training.",
    "nodes": "Nodes of these workers.",
    "planned_steps": "Steps planned for the run.",
    "restarts": "Restarts of the run.",
    "failures": "Workers that ended with their own error.",
    "faults/lost_workers": "Workers lost while the others continued.",
    "faults/regroups": "Regroups of the surviving workers, without a restart.",
    "faults/regroup_seconds": "Total duration of all regroups.",
    "faults/slow_workers": "Stragglers reported.",
    "faults/failed_devices": "Devices that failed and were excluded.",
    "faults/refused_steps": "Steps refused because of a worker's bad values.",
    **{f"mean/{part}_seconds": f"Time per step, mean of the workers: {part}." for part in PARTS},
    **{f"slowest/{part}_seconds": f"Time per step, slowest worker: {part}." for part in PARTS},
    "slowest/busy_seconds": "Time per step, slowest worker, without waiting for others.",
    "slowest/rank": "Rank of the slowest worker.",
    "checkpoints/complete": "Completed checkpoints.",
    "checkpoints/step": "Step of the last checkpoint.",
    "checkpoints/bytes": "Size of the last checkpoint.",
    "checkpoints/seconds": "Time from the end of the step until the checkpoint was complete.",
    "checkpoints/stall_seconds": "Time that the checkpoint stalled training.",
    "checkpoints/bad": "Checkpoints that were not written or failed verification.",
    **{
        f"off/{protection.replace(' ', '_')}": f"Workers or nodes without protection: {protection}."
        for protection in PROTECTIONS
    },
    "exit_code": "Exit code of the job, once it has ended.",
}
"""All metrics of a run and their meanings; times of steps and checkpoints are in seconds."""

Kind = Literal["figures", "started", "again", "happened", "ended"]


@dataclass(frozen=True)
class Observation:
    """Metrics of one moment of a run, and the event that occurred, if any."""

    kind: Kind
    """`again`: the run continues from `step`, so steps reported after it no longer count.
    `ended`: the job's `Ended` event; a resumed run continues after it."""
    time: float
    """Unix seconds."""
    step: int
    figures: Mapping[str, float]
    """The new values, keyed as `FIGURES`, or the training's own metrics by their names."""
    note: str = ""
    """A sentence about the event; for `ended`, one of finished, stopped or failed."""


@dataclass
class _Load:
    """The workers' step breakdown; keeps sums, so a window costs only as much as it contains."""

    _states: dict[int, WorkerState] = field(default_factory=dict)
    _busy: dict[int, float] = field(default_factory=dict)
    _sums: dict[Part, float] = field(default_factory=dict)

    def take(self, state: WorkerState) -> None:
        before = self._states.get(state.rank)
        for part, seconds in before.parts.items() if before else ():
            self._sums[part] -= seconds
        for part, seconds in state.parts.items():
            self._sums[part] = self._sums.get(part, 0.0) + seconds
        self._states[state.rank] = state
        self._busy[state.rank] = own_seconds(state.parts, state.step_seconds)

    def figures(self) -> dict[str, float]:
        if not self._busy:
            return {}
        rank = max(self._busy, key=self._busy.__getitem__)
        # A sum after additions and subtractions may end a rounding error below 0.
        means = {
            f"mean/{part}_seconds": max(0.0, total / len(self._states))
            for part, total in self._sums.items()
        }
        slowest = {
            f"slowest/{part}_seconds": value for part, value in self._states[rank].parts.items()
        }
        return means | slowest | {"slowest/busy_seconds": self._busy[rank], "slowest/rank": rank}


class Digest:
    """Takes a run's events as they are read, and returns new observations."""

    def __init__(self) -> None:
        self._generations = Generations()
        self._faults = FaultCounts()
        self._lapses = Lapses()
        self._generation = 0
        self._trained_generation = 0
        self._step = 0
        self._load = _Load()
        self._failures = 0
        self._complete = 0
        self._bad = 0
        self._outcome = ""

    def take(self, events: Sequence[AnyEvent]) -> list[Observation]:
        """Return the observations of these events, processed by generation and then by time."""
        for event in events:
            self._generations.take(event)
        in_order = sorted(events, key=self._place)
        return [seen for event in in_order for seen in self._observed(event)]

    def _place(self, event: AnyEvent) -> tuple[int, bool, float]:
        # A start's last event has a clock that may lag behind the workers', and may name any of the
        # start's generations.
        last_word = isinstance(event, Finished | Ended)
        generation = self._generations.last(event.generation) if last_word else event.generation
        return generation, event.kind == "ended", event.time

    def _observed(self, event: AnyEvent) -> Iterator[Observation]:
        if isinstance(event, Degraded | Restored):
            return self._protection(event)
        if isinstance(event, Logged | Evaluated):
            late = event.generation < self._generation
            return iter(()) if late else _own_metrics(event)
        return self._seen(event)

    def _seen(self, event: AnyEvent) -> Iterator[Observation]:
        generation = self._place(event)[0]
        if isinstance(event, Lost | Regrouped | Slow | Refused | SickDevice):
            figures, note = self._faults.take(event)
            if isinstance(event, Regrouped) and generation >= self._generation:
                figures["workers"] = event.workers
                figures["restarts"] = self._generations.restarts(generation)
            yield Observation("happened", event.time, self._step, figures, note)
        if generation < self._generation:
            return  # on a slow file system, events may appear after those of a newer generation
        if generation > self._generation:
            yield from self._begin(generation, event.time)
        match event:
            case Workers():  # nearly all events of a large run, so these first
                for state in event.states:
                    self._load.take(state)
            case Started() if 0 in event.ranks:
                figures = {
                    "workers": event.workers,
                    "nodes": event.nodes,
                    "planned_steps": event.steps,
                    "restarts": self._generations.restarts(generation),
                    **self._off(),
                }
                yield Observation("started", event.time, self._step, figures)
            case Steps():
                yield from self._trained(event)
            case Failed() if not event.lost_peer:
                self._failures += 1
                first_line = (event.message.splitlines() or ["failed"])[0]
                note = f"{worker_in_words(event.rank)} on {event.node} failed: {first_line}"
                figures = {"failures": self._failures}
                yield Observation("happened", event.time, self._step, figures, note)
            case Finished():
                self._outcome = "finished" if event.outcome == "finished" else "stopped"
            case Ended():
                failed = event.exit_code and self._outcome != "stopped"
                note = "failed" if failed else self._outcome or "stopped"
                figures = {"exit_code": event.exit_code}
                yield Observation("ended", event.time, self._step, figures, note)
            case Saved() | NotSaved() | Damaged():
                yield self._checkpoint(event)

    def _begin(self, generation: int, time: float) -> Iterator[Observation]:
        self._generation = generation
        self._load, self._outcome = _Load(), ""
        if self._lapses.begin(generation, self._generations.first(generation)):
            yield Observation("figures", time, self._step, self._off())

    def _protection(self, event: Degraded | Restored) -> Iterator[Observation]:
        lapse = self._lapses.take(event)
        if lapse is not None:
            how = f"are off: {lapse.began.why}" if lapse.ended is None else "work again"
            note = f"{lapse.words}: {how}"
            yield Observation("happened", event.time, self._step, self._off(), note)

    def _off(self) -> dict[str, float]:
        off = Counter(began.protection for began in self._lapses.open.values())
        return {f"off/{each.replace(' ', '_')}": off[each] for each in PROTECTIONS}

    def _trained(self, event: Steps) -> Iterator[Observation]:
        end_time = event.time - sum(event.seconds)
        if event.generation > self._trained_generation or event.first <= self._step:
            self._trained_generation = event.generation
            note = f"the run continued from step {event.first - 1}"
            if self._step >= event.first:
                note += f"; steps up to {self._step} are repeated"
            yield Observation("again", end_time, event.first - 1, {}, note)
        rows = zip(event.loss, event.seconds, event.samples, strict=False)
        for step, (loss, seconds, samples) in enumerate(rows, start=event.first):
            end_time += seconds
            figures = {"step": step, "loss": loss, "step_seconds": seconds}
            if seconds > 0:
                figures["samples_per_second"] = samples / seconds
            self._step = step
            yield Observation("figures", end_time, step, figures)
        load = self._load.figures()
        if load:
            yield Observation("figures", event.time, self._step, load)

    def _checkpoint(self, event: Saved | NotSaved | Damaged) -> Observation:
        if isinstance(event, Saved):
            self._complete += 1
            figures = {
                "checkpoints/complete": self._complete,
                "checkpoints/step": event.step,
                "checkpoints/bytes": event.bytes,
                "checkpoints/seconds": event.seconds,
                "checkpoints/stall_seconds": event.stall_seconds,
            }
            note = f"the checkpoint of step {event.step} is complete"
            return Observation("happened", event.time, event.step, figures, note)
        self._bad += 1
        note = f"the checkpoint of step {event.step} is unusable: {event.message}"
        return Observation("happened", event.time, self._step, {"checkpoints/bad": self._bad}, note)


def _own_metrics(event: Logged | Evaluated) -> Iterator[Observation]:
    """Yield the training's own metrics, step by step."""
    if isinstance(event, Evaluated):
        yield Observation("figures", event.time, event.step, evaluated_metrics(event))
        return
    for row, step in enumerate(event.steps):
        found = {name: values[row] for name, values in event.metrics.items()}
        figures = {f"{LOGGED}{name}": each for name, each in found.items() if each is not None}
        yield Observation("figures", event.time, step, figures)
