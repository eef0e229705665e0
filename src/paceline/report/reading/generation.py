"""One generation of a run's workers, built from its events: whatever order the nodes' files are
read in."""

import math
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, islice

from paceline.observe.usage.node_usage import NodeUse
from paceline.specs import (
    Agreed,
    AnyEvent,
    Damaged,
    Ended,
    Evaluated,
    Failed,
    Finished,
    Lost,
    NotSaved,
    Part,
    Refused,
    Regrouped,
    Resumed,
    Saved,
    Slow,
    Started,
    Steps,
    Traced,
    Usage,
    Workers,
    WorkerState,
)


@dataclass
class Worker:
    """One worker as last heard of."""

    rank: int
    node: str
    heard_at: float
    """When its last event was written, on this process's monotonic clock."""
    begin: int = 0
    """The step that its start of the run went on from."""
    state: WorkerState | None = None
    """Nothing before the first window of steps is over."""
    _first: WorkerState | None = field(default=None, repr=False)
    _steps: int = field(default=0, repr=False)
    """Steps after the first window."""
    _seconds: float = field(default=0.0, repr=False)
    """What they took."""
    _parts: dict[Part, float] = field(default_factory=dict, repr=False)
    """What that time went to."""

    @property
    def age_seconds(self) -> float:
        """How long nothing has been heard from it."""
        return max(0.0, time.monotonic() - self.heard_at)

    @property
    def mean_step_seconds(self) -> float | None:
        """Over all windows of this start, each weighted by its steps."""
        if self._first is None:
            return None
        # Where the first window began is sometimes learnt from another node's file, and later.
        first_steps = max(1, self._first.step - self.begin)
        seconds = self._first.step_seconds * first_steps + self._seconds
        return seconds / (first_steps + self._steps)

    @property
    def mean_parts(self) -> dict[Part, float]:
        """Seconds of a step by what they went to, as `mean_step_seconds`; but for the first window,
        in which much is done once for all, unless there is no other."""
        if not self._steps:
            return self._first.parts if self._first else {}
        return {part: seconds / self._steps for part, seconds in self._parts.items()}

    def take(self, state: WorkerState, heard_at: float) -> None:
        """The worker's next window of steps."""
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
    """Steps in their order, one entry each."""

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    """Unix seconds at the end of each step, by the clock of worker 0's node."""

    def cut(self, step: int) -> None:
        """Forget what comes after a step."""
        kept = bisect_right(self.step, step)
        for column in (self.step, self.loss, self.seconds, self.samples, self.time):
            del column[kept:]

    def add(self, event: Steps) -> None:
        """The next steps; one that was there before is taken again."""
        self.cut(event.first - 1)
        count = min(len(event.loss), len(event.seconds), len(event.samples))
        seconds = event.seconds[:count]
        self.step += range(event.first, event.first + count)
        self.loss += event.loss[:count]
        self.seconds += seconds
        self.samples += event.samples[:count]
        self.time += islice(accumulate(seconds, initial=event.time - sum(seconds)), 1, None)

    def seconds_after(self, step: int) -> float:
        """What the steps after a step took."""
        return math.fsum(self.seconds[bisect_right(self.step, step) :])

    def extend(self, later: "Columns") -> None:
        """The steps of a later start."""
        self.step += later.step
        self.loss += later.loss
        self.seconds += later.seconds
        self.samples += later.samples
        self.time += later.time


@dataclass
class Start:
    """All that is known of one generation of a run's workers: from a start of the run, or from a
    regroup inside of one, to what ended it."""

    generation: int
    regrouped: Regrouped | None = None
    """How it began inside the living processes of the one before; unset for a start of the run."""
    faults: list[Lost | Slow | Refused] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    workers: dict[int, Worker] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    checkpoints: list[Saved] = field(default_factory=list)
    saved_at: float | None = None
    """When the last of them was complete, on this process's monotonic clock."""
    trouble: list[NotSaved | Damaged] = field(default_factory=list)
    agreements: list[Agreed] = field(default_factory=list)
    """Changes of the way in which replicas agree."""
    usage: dict[str, NodeUse] = field(default_factory=dict)
    """What each node's workers used."""
    traced: list[Traced] = field(default_factory=list)
    """What workers have recorded of a few steps."""
    evaluations: list[Evaluated] = field(default_factory=list)
    finished: Finished | None = None
    ended: Ended | None = None
    _resumed: int | None = field(default=None, repr=False)
    _worker_0_started: bool = field(default=False, repr=False)
    _begin: int = field(default=0, repr=False)
    """The step of `resumed` that the workers know."""
    _trained_time: float = field(default=0.0, repr=False)
    _told_time: float = field(default=0.0, repr=False)

    @property
    def trained(self) -> bool:
        """Whether it came to train; the line that said so may be among the unreadable ones."""
        return bool(self.started or self.columns.step or self.workers or self.regrouped)

    @property
    def resumed(self) -> int | None:
        """The step that it went on from, 0 for the beginning; None while that is not known."""
        if self.regrouped is not None:
            return self.regrouped.step
        if self._resumed is not None:
            return self._resumed
        if self.columns.step:
            return self.columns.step[0] - 1
        # Worker 0's node says that it resumed before it says that it started.
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
        """When it last got on, in Unix seconds.

        A failure is often noticed long after nothing was trained any more, so it counts only where
        there is nothing else.
        """
        return self._trained_time or self._told_time

    @property
    def number_of_workers(self) -> int | None:
        """How many workers trained."""
        if self.regrouped is not None:
            return self.regrouped.workers
        return self.started[0].workers if self.started else len(self.workers) or None

    def use(self, event: Usage) -> None:
        """Add what a node's workers used."""
        self.usage.setdefault(event.node, NodeUse(event.node)).take(event)

    def take(self, event: AnyEvent, heard_at: float) -> None:
        """Add one event, written at `heard_at` on this process's monotonic clock."""
        self._told_time = max(self._told_time, event.time)
        if isinstance(event, Workers):  # nearly all events of a large run, so these first
            self._trained_time = max(self._trained_time, event.time)
            for state in event.states:
                self._worker(state.rank, event.node, heard_at).take(state, heard_at)
            return
        if not isinstance(event, Failed | Ended | Lost):
            self._trained_time = max(self._trained_time, event.time)
        match event:
            case Started():
                self.started.append(event)
                self._worker_0_started |= 0 in event.ranks
                for rank in event.ranks:
                    self._worker(rank, event.node, heard_at)
            case Steps():
                self.columns.add(event)
            case Agreed() | Evaluated() | Traced():
                self._take_found(event)
            case Failed() | Finished() | Ended():
                self._take_end(event)
            case Saved() | NotSaved() | Damaged() | Resumed():
                self._take_checkpoint(event, heard_at)
            case Regrouped() | Lost() | Slow() | Refused():
                self._take_fault(event)
        if (self.resumed or 0) != self._begin:
            self._begin = self.resumed or 0
            for worker in self.workers.values():
                worker.begin = self._begin

    def _take_found(self, event: Agreed | Evaluated | Traced) -> None:
        if isinstance(event, Agreed):
            self.agreements.append(event)
        elif isinstance(event, Evaluated):
            self.evaluations.append(event)
        else:
            self.traced.append(event)

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

    def _take_fault(self, event: Regrouped | Lost | Slow | Refused) -> None:
        if isinstance(event, Regrouped):
            self.regrouped = event
        else:
            self.faults.append(event)

    def _take_trouble(self, event: NotSaved | Damaged) -> None:
        """Each worker that found the same flaw says so; once is enough."""
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
