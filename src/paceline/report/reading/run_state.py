"""The state of a run so far, built event by event and merged over all restarts and regroups."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from paceline.observe.generations import Generations
from paceline.observe.lapses import Lapse, Lapses, lapses_of
from paceline.observe.usage.node_usage import NodeUse
from paceline.report.reading.generation import Generation, Worker
from paceline.report.reading.merged_generations import (
    Interruption,
    RunHistory,
    finished,
    merge_generations,
    one_start,
)
from paceline.report.reading.metric_series import Series
from paceline.specs import (
    AnyEvent,
    Damaged,
    Degraded,
    Ended,
    Evaluated,
    Failed,
    Finished,
    Grew,
    Job,
    Noise,
    NotSaved,
    Outcome,
    Plan,
    Regrouped,
    Restored,
    RuleApplied,
    Saved,
    Started,
    SurvivedFault,
    SyncChanged,
    Traced,
    Usage,
)

Status = Literal["waiting", "running", "finished", "stopped", "failed"]


@dataclass
class RunState:
    """The state of a run from the events so far: its newest generation of workers, and the merged
    result of all generations.

    Columns (`step`, `loss`, `seconds`, `samples`, `time`) have one entry for each step that counts:
    of a repeated step, only the later generation's. Workers and failures belong to the newest
    generation; `finished` and `ended` belong to the newest start.
    """

    job: Job
    plan: Plan
    unreadable_lines: int = 0
    """Complete lines that are no valid event, for example because a node died while it wrote."""
    disk_full: bool = False
    """Whether the disk of the run's folder is full, so that events may be missing."""
    heard_at: float | None = None
    """When the last training event was written, on this process's monotonic clock."""
    _starts: dict[int, Generation] = field(default_factory=lambda: {0: Generation(0)}, repr=False)
    _generations: Generations = field(default_factory=Generations, repr=False)
    _merged: RunHistory | None = field(default=None, repr=False)

    def take(self, event: AnyEvent, heard_at: float) -> None:
        """Add one event, written at `heard_at` on this process's monotonic clock."""
        self._generations.take(event)
        if event.generation not in self._starts:
            self._starts[event.generation] = Generation(event.generation)
            self._starts = dict(sorted(self._starts.items()))
        if isinstance(event, Usage):  # no sign of progress: training may hang meanwhile
            self._starts[event.generation].use(event)
            return
        if isinstance(event, Degraded | Restored):
            self._starts[event.generation].protections.append(event)
            return
        self.heard_at = max(self.heard_at or heard_at, heard_at)
        self._starts[event.generation].take(event, heard_at)
        self._merged = None

    @property
    def generation(self) -> int:
        """The number of the newest generation; the first is 0."""
        return self._newest.generation

    @property
    def restarts(self) -> int:
        """Number of times the run was restarted."""
        return self._generations.restarts(self.generation)

    def start_number(self, generation: int) -> int:
        """Return in which start of the run, counted from 1, a generation trained."""
        return 1 + self._generations.restarts(generation)

    @property
    def started(self) -> list[Started]:
        """The nodes' `Started` events, from the newest start's latest generation that has any."""
        return next((each.started for each in reversed(self._start) if each.started), [])

    @property
    def startup_seconds(self) -> float | None:
        """Seconds from process start to the first step, on the slowest node."""
        said = next((each.started for each in self._start if each.started), [])
        return max((each.startup_seconds for each in said), default=None)

    @property
    def number_of_workers(self) -> int | None:
        """Number of workers that train now or trained last; None before any worker reports."""
        return self._newest.number_of_workers

    @property
    def workers(self) -> dict[int, Worker]:
        """The workers of the newest generation, by rank."""
        return self._newest.workers

    @property
    def failures(self) -> list[Failed]:
        """Workers of the newest generation that ended with an error."""
        return self._newest.failures

    @property
    def last_failures(self) -> list[Failed]:
        """Failures since the newest generation began; a launcher files them under its first one."""
        began = self._newest.began_time or 0.0
        late = [each for start in self._start[:-1] for each in start.failures if each.time >= began]
        return [*self.failures, *late]

    @property
    def earlier_failures(self) -> list[Failed]:
        """Failures of generations before the newest one."""
        return [each for start in self._all[:-1] for each in start.failures]

    @property
    def finished(self) -> Finished | None:
        """The newest start's `Finished` event, written by its workers."""
        return finished(self._start)

    @property
    def ended(self) -> Ended | None:
        """The newest start's `Ended` event, written by its launcher."""
        return next((each.ended for each in reversed(self._start) if each.ended), None)

    @property
    def step(self) -> list[int]:
        """Step numbers, from 1."""
        return self._history.columns.step

    @property
    def loss(self) -> list[float]:
        """Mean loss over each step's global batch."""
        return self._history.columns.loss

    @property
    def seconds(self) -> list[float]:
        """Duration of each step, in seconds."""
        return self._history.columns.seconds

    @property
    def samples(self) -> list[int]:
        """Number of samples in each step."""
        return self._history.columns.samples

    @property
    def time(self) -> list[float]:
        """Unix seconds at the end of each step, by the clock of worker 0's node."""
        return self._history.columns.time

    @property
    def interruptions(self) -> list[Interruption]:
        """Ends of training that were not the end of the run."""
        return self._history.interruptions

    @property
    def regroups(self) -> list[Regrouped]:
        """All regroups of the run."""
        return [each.regrouped for each in self._all if each.regrouped]

    @property
    def faults(self) -> list[SurvivedFault]:
        """Lost workers, stragglers, refused steps and sick devices, in reading order."""
        return [fault for each in self._all for fault in each.faults]

    @property
    def checkpoints(self) -> list[Saved]:
        """Complete checkpoints of all starts, including those deleted since."""
        return [each for start in self._all for each in start.checkpoints]

    @property
    def checkpoint_age_seconds(self) -> float | None:
        """Seconds since the last checkpoint was completed."""
        saved_at = next((each.saved_at for each in self._all[::-1] if each.saved_at), None)
        return None if saved_at is None else max(0.0, time.monotonic() - saved_at)

    @property
    def trouble(self) -> list[NotSaved | Damaged]:
        """Checkpoints that could not be written or are damaged, in all starts."""
        return [each for start in self._all for each in start.trouble]

    @property
    def lapses(self) -> list[Lapse]:
        """Times in which a protection was off, in the order of their beginnings."""
        return lapses_of(each for start in self._all for each in start.protections)

    @property
    def off(self) -> list[Degraded]:
        """Protections that are off now, or were when the run ended."""
        lapses = Lapses()
        lapses.begin(self.generation, self._generations.first(self.generation))
        for each in (lapse for lapse in self.lapses if lapse.ended is None):
            lapses.take(each.began)
        return list(lapses.open.values())

    @property
    def sync_changes(self) -> list[SyncChanged]:
        """Changes of the synchronization mode, in all starts."""
        return [each for start in self._all for each in start.sync_changes]

    @property
    def usage(self) -> list[NodeUse]:
        """Resource usage of each node's workers, start by start."""
        return [each for start in self._all for each in start.usage.values()]

    @property
    def traced(self) -> list[Traced]:
        """Profiles of the newest generation that recorded any, by rank."""
        found = next((start.traced for start in self._all[::-1] if start.traced), [])
        return sorted(found, key=lambda each: each.rank)

    @property
    def evaluations(self) -> list[Evaluated]:
        """Results of `trainer.evaluate`, in all starts."""
        return [each for start in self._all for each in start.evaluations]

    @property
    def metrics(self) -> dict[str, Series]:
        """The training's own metrics by name; of a repeated step, only the later value."""
        found = self._history.metrics.series
        return {name: series for name, series in found.items() if series.step}

    @property
    def learning(self) -> list[Noise | RuleApplied | Grew]:
        """Gradient noise, settings changed for the batch, and its growths, in all starts."""
        return [each for start in self._all for each in start.learning]

    @property
    def trained_seconds(self) -> float:
        """Total duration of all steps, including repeated ones."""
        return math.fsum(seconds for start in self._all for seconds in start.columns.seconds)

    @property
    def began_time(self) -> float | None:
        """When the first start that trained began to train, in Unix seconds."""
        return next((each.began_time for each in self._all if each.began_time is not None), None)

    @property
    def first_step_time(self) -> float | None:
        """When the run's first step began, in Unix seconds."""
        taken = (each.columns for each in self._all if each.columns.step)
        return next((each.time[0] - each.seconds[0] for each in taken), None)

    @property
    def planned_steps(self) -> int | None:
        """Number of steps that the run will take; None before the first worker starts."""
        return next((each.planned_steps for each in self._all[::-1] if each.started), None)

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last event from any node."""
        return 0.0 if self.heard_at is None else max(0.0, time.monotonic() - self.heard_at)

    @property
    def status(self) -> Status:
        """The run's status in one word."""
        if self.generation < self.job.first_generation:
            return "waiting"  # it was resumed, and no worker has reported yet
        if any(not failure.lost_peer for failure in self.failures):
            return "failed"
        if self.finished is not None:
            return self._ended_well(self.finished.outcome)
        if self.failures or self._exit_code:
            return "failed"
        if self.ended is not None:
            return "stopped"
        return "running" if self._newest.trained else "waiting"

    def _ended_well(self, outcome: Outcome) -> Status:
        """Return the status of a run with a `Finished` event."""
        match outcome:
            case "interrupted" | "preempted":
                return "stopped" if self.ended else "waiting"
            case "stopped":
                # The exit code then comes from the scheduler's warning signal.
                return "stopped"
            case "finished":
                # A nonzero exit code means that something broke after the last step.
                return "failed" if self._exit_code else "finished"

    @property
    def _exit_code(self) -> int:
        return self.ended.exit_code if self.ended else 0

    @property
    def over(self) -> bool:
        """Whether no more events are expected."""
        return self.status in ("finished", "stopped", "failed")

    @property
    def _all(self) -> list[Generation]:
        return list(self._starts.values())

    @property
    def _start(self) -> Sequence[Generation]:
        """The generations of the newest start."""
        return one_start(self._all)

    @property
    def _newest(self) -> Generation:
        return next(reversed(self._starts.values()))

    @property
    def _history(self) -> RunHistory:
        if self._merged is None:
            self._merged = merge_generations(self._all)
        return self._merged
