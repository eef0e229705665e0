"""One generation of a run's workers, built from its events in whatever order the nodes' files are
read."""

import math
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, islice

from paceline.observe.usage.node_usage import NodeUse
from paceline.report.reading.metric_series import MetricSeries
from paceline.specs import (
    AnyEvent,
    Damaged,
    Degraded,
    Ended,
    Evaluated,
    Failed,
    Finished,
    Grew,
    Logged,
    Lost,
    Noise,
    NotSaved,
    Part,
    Refused,
    Regrouped,
    Restored,
    Resumed,
    RuleApplied,
    Saved,
    SickDevice,
    Slow,
    Started,
    Steps,
    SurvivedFault,
    SyncChanged,
    Traced,
    Usage,
    Workers,
    WorkerState,
)


@dataclass
class Worker:
    """The latest known state of one worker."""

    rank: int
    node: str
    heard_at: float
    """When its last event was written, on this process's monotonic clock."""
    begin: int = 0
    """The step that its start of the run continued from."""
    state: WorkerState | None = None
    """None until the first window of steps ends."""
    _first: WorkerState | None = field(default=None, repr=False)
    _steps: int = field(default=0, repr=False)
    """Number of steps after the first window."""
    _seconds: float = field(default=0.0, repr=False)
    """Total duration of those steps."""
    _parts: dict[Part, float] = field(default_factory=dict, repr=False)
    """Total duration of those steps, by part of the step breakdown."""

    @property
    def age_seconds(self) -> float:
        """Seconds since the worker's last event."""
        return max(0.0, time.monotonic() - self.heard_at)

    @property
    def mean_step_seconds(self) -> float | None:
        """Mean seconds per step over all windows of this start, weighted by number of steps."""
        if self._first is None:
            return None
        # Another node's file may later reveal the step at which the first window began.
        first_steps = max(1, self._first.step - self.begin)
        seconds = self._first.step_seconds * first_steps + self._seconds
        return seconds / (first_steps + self._steps)

    @property
    def mean_parts(self) -> dict[Part, float]:
        """Mean seconds per step for each part of the step breakdown; excludes the first window,
        which contains one-time work, unless it is the only one."""
        if not self._steps:
            return self._first.parts if self._first else {}
        return {part: seconds / self._steps for part, seconds in self._parts.items()}

    def take(self, state: WorkerState, heard_at: float) -> None:
        """Add the worker's next window of steps."""
        if self.state is None:
            self._first = state
        elif state.step > self.state.step:
            steps = state.step - self.state.step
            self._steps += steps
            self._seconds += steps * state.step_seconds
            parts = self._parts
            for part, seconds in state.parts.items():
                parts[part] = parts.get(part, 0.0) + steps * seconds
        self.state = state
        self.heard_at = heard_at


@dataclass
class Columns:
    """Per-step values in step order, one entry per step."""

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    """Unix seconds at the end of each step, by the clock of worker 0's node."""

    def cut(self, step: int) -> None:
        """Drop all steps after `step`."""
        kept = bisect_right(self.step, step)
        for column in (self.step, self.loss, self.seconds, self.samples, self.time):
            del column[kept:]

    def add(self, event: Steps) -> None:
        """Append the next steps; a step that is already present is replaced."""
        self.cut(event.first - 1)
        count = min(len(event.loss), len(event.seconds), len(event.samples))
        seconds = event.seconds[:count]
        self.step += range(event.first, event.first + count)
        self.loss += event.loss[:count]
        self.seconds += seconds
        self.samples += event.samples[:count]
        self.time += islice(accumulate(seconds, initial=event.time - sum(seconds)), 1, None)

    def seconds_after(self, step: int) -> float:
        """Return the total duration of the steps after `step`."""
        return math.fsum(self.seconds[bisect_right(self.step, step) :])

    def extend(self, later: "Columns") -> None:
        """Append the steps of a later start."""
        self.step += later.step
        self.loss += later.loss
        self.seconds += later.seconds
        self.samples += later.samples
        self.time += later.time


@dataclass
class Generation:
    """The events of one generation of a run's workers, from a start of the run or a regroup within
    one until the generation ends."""

    generation: int
    regrouped: Regrouped | None = None
    """The regroup that formed it from the previous generation's processes; None for a start."""
    faults: list[SurvivedFault] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    workers: dict[int, Worker] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    checkpoints: list[Saved] = field(default_factory=list)
    saved_at: float | None = None
    """When the last checkpoint was completed, on this process's monotonic clock."""
    trouble: list[NotSaved | Damaged] = field(default_factory=list)
    protections: list[Degraded | Restored] = field(default_factory=list)
    """Protections that went off or work again."""
    sync_changes: list[SyncChanged] = field(default_factory=list)
    """Changes of the synchronization mode."""
    usage: dict[str, NodeUse] = field(default_factory=dict)
    """Resource usage of each node's workers."""
    traced: list[Traced] = field(default_factory=list)
    """Profiles that workers recorded of a few steps."""
    evaluations: list[Evaluated] = field(default_factory=list)
    metrics: MetricSeries = field(default_factory=MetricSeries)
    """Logged metrics, and those of evaluations."""
    learning: list[Noise | RuleApplied | Grew] = field(default_factory=list)
    """Measured gradient noise, settings that were changed for the batch, and its growths."""
    finished: Finished | None = None
    ended: Ended | None = None
    _resumed: int | None = field(default=None, repr=False)
    _worker_0_started: bool = field(default=False, repr=False)
    _begin: int = field(default=0, repr=False)
    """The value of `resumed` last passed to the workers."""
    _trained_time: float = field(default=0.0, repr=False)
    _told_time: float = field(default=0.0, repr=False)

    @property
    def trained(self) -> bool:
        """Whether it started to train; the line with its `Started` event may be unreadable."""
        return bool(self.started or self.columns.step or self.workers or self.regrouped)

    @property
    def resumed(self) -> int | None:
        """The step it continued from, 0 for the beginning; None while unknown."""
        if self.regrouped is not None:
            return self.regrouped.step
        if self._resumed is not None:
            return self._resumed
        if self.columns.step:
            return self.columns.step[0] - 1
        # Worker 0's node writes `Resumed` before `Started`.
        return 0 if self._worker_0_started else None

    @property
    def began_time(self) -> float | None:
        """When it began to train, in Unix seconds."""
        if self.regrouped is not None:
            return self.regrouped.time
        if self.started:
            return min(each.time for each in self.started)
        return self.columns.time[0] - self.columns.seconds[0] if self.columns.step else None

    @property
    def last_time(self) -> float:
        """When it last made progress, in Unix seconds.

        A failure is often detected long after training stopped, so the time of a failure, a loss
        or the job's end counts only if there is no other event.
        """
        return self._trained_time or self._told_time

    @property
    def number_of_workers(self) -> int | None:
        """Number of workers that trained."""
        if self.regrouped is not None:
            return self.regrouped.workers
        return self.started[0].workers if self.started else len(self.workers) or None

    @property
    def planned_steps(self) -> int:
        """Number of steps of the run, which falls when the batch grows; there is a `started`."""
        grown = [event.steps for event in self.learning if isinstance(event, Grew)]
        return min([self.started[0].steps, *grown])

    def use(self, event: Usage) -> None:
        """Add a node's resource usage."""
        self.usage.setdefault(event.node, NodeUse(event.node)).take(event)

    def take(self, event: AnyEvent, heard_at: float) -> None:
        """Add one event, written at `heard_at` on this process's monotonic clock."""
        self._told_time = max(self._told_time, event.time)
        if isinstance(event, Workers):  # nearly all events of a large run, so these first
            self._trained_time = max(self._trained_time, event.time)
            for state in event.states:
                self._worker(state.rank, event.node, heard_at).take(state, heard_at)
            return
        if not isinstance(event, Failed | Ended | Lost | SickDevice):
            self._trained_time = max(self._trained_time, event.time)
        match event:
            case Started():
                self.started.append(event)
                self._worker_0_started |= 0 in event.ranks
                for rank in event.ranks:
                    self._worker(rank, event.node, heard_at)
            case Steps():
                self.columns.add(event)
            case (
                SyncChanged() | Evaluated() | Logged() | Traced() | Noise() | RuleApplied() | Grew()
            ):
                self._take_found(event)
            case Failed() | Finished() | Ended():
                self._take_end(event)
            case Saved() | NotSaved() | Damaged() | Resumed():
                self._take_checkpoint(event, heard_at)
            case Regrouped() | Lost() | Slow() | Refused() | SickDevice():
                self._take_fault(event)
        if (self.resumed or 0) != self._begin:
            self._begin = self.resumed or 0
            for worker in self.workers.values():
                worker.begin = self._begin

    def _take_found(
        self, event: SyncChanged | Evaluated | Logged | Traced | Noise | RuleApplied | Grew
    ) -> None:
        if isinstance(event, SyncChanged):
            self.sync_changes.append(event)
        elif isinstance(event, Evaluated):
            self.evaluations.append(event)
            self.metrics.add(event)
        elif isinstance(event, Logged):
            self.metrics.add(event)
        elif isinstance(event, Traced):
            self.traced.append(event)
        else:
            self.learning.append(event)

    def _take_end(self, event: Failed | Finished | Ended) -> None:
        if isinstance(event, Failed):
            self.failures.append(event)
        elif isinstance(event, Finished):
            self.finished = event
        else:
            self.ended = event

    def _take_checkpoint(
        self, event: Saved | NotSaved | Damaged | Resumed, heard_at: float
    ) -> None:
        if isinstance(event, Resumed):
            self._resumed = event.step
        elif isinstance(event, Saved):
            self.checkpoints.append(event)
            self.saved_at = heard_at
        else:
            self._take_trouble(event)

    def _take_fault(self, event: Regrouped | SurvivedFault) -> None:
        if isinstance(event, Regrouped):
            self.regrouped = event
        else:
            self.faults.append(event)

    def _take_trouble(self, event: NotSaved | Damaged) -> None:
        """Add a checkpoint problem once, although each worker that finds it reports it."""
        alike = {"time": 0.0, "node": ""}
        if event.model_copy(update=alike) not in (
            known.model_copy(update=alike) for known in self.trouble
        ):
            self.trouble.append(event)

    def _worker(self, rank: int, node: str, heard_at: float) -> Worker:
        known = self.workers.get(rank)
        if known is None:
            known = self.workers[rank] = Worker(rank, node, heard_at, self._begin)
        return known
