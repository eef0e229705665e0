"""What is known of a run so far: built event by event, of the newest start only."""

import time
from dataclasses import dataclass, field
from typing import Literal

from paceline.specs import (
    AnyEvent,
    Ended,
    Failed,
    Finished,
    Job,
    Plan,
    Started,
    Steps,
    Workers,
    WorkerState,
)

Status = Literal["waiting", "running", "finished", "stopped", "failed"]


@dataclass
class Worker:
    """One worker as last heard of."""

    rank: int
    node: str
    heard_at: float
    """When its last event was written, on this process's monotonic clock."""
    state: WorkerState | None = None
    """Nothing before the first window of steps is over."""
    mean_step_seconds: float | None = None
    """Over all windows of this start, each weighted by its steps."""
    _steps: int = field(default=0, repr=False)

    @property
    def age_seconds(self) -> float:
        """How long nothing has been heard from it."""
        return max(0.0, time.monotonic() - self.heard_at)

    def take(self, state: WorkerState, heard_at: float) -> None:
        """The worker's next window of steps."""
        steps = state.step - (self.state.step if self.state else 0)
        if steps > 0:
            before = (self.mean_step_seconds or 0.0) * self._steps
            self._steps += steps
            self.mean_step_seconds = (before + state.step_seconds * steps) / self._steps
        self.state = state
        self.heard_at = heard_at


@dataclass
class RunState:
    """All that the events said so far about the newest start (generation) of a run.

    Columns (`step`, `loss`, `seconds`, `samples`, `time`) have one entry for each step.
    """

    job: Job
    plan: Plan
    generation: int = 0
    started: list[Started] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    """Unix seconds at the end of each step, by the clock of worker 0's node."""
    workers: dict[int, Worker] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    earlier_failures: list[Failed] = field(default_factory=list)
    """Failures of starts before the newest one."""
    finished: Finished | None = None
    ended: Ended | None = None
    unreadable_lines: int = 0
    """Whole lines that were no event: a node was cut off while it wrote."""
    heard_at: float | None = None
    """When the last event was written, on this process's monotonic clock."""

    @property
    def restarts(self) -> int:
        """How often the run was started again."""
        return self.generation

    @property
    def planned_steps(self) -> int | None:
        """Steps that the run will take; unknown before the first worker started."""
        return self.started[0].steps if self.started else None

    @property
    def quiet_seconds(self) -> float:
        """How long nothing has been heard from any node."""
        return 0.0 if self.heard_at is None else max(0.0, time.monotonic() - self.heard_at)

    @property
    def status(self) -> Status:
        """Where the run stands, in one word."""
        if any(not failure.lost_peer for failure in self.failures):
            return "failed"
        exit_code = self.ended.exit_code if self.ended else 0
        if self.finished is not None:
            # A scheduler's warning signal makes the exit code of a stopped run; of a run that
            # reached its end a bad code means that something broke after the last step.
            return "failed" if exit_code and self._reached_end else self.finished.outcome
        if self.failures or exit_code:
            return "failed"
        if self.ended is not None:
            return "stopped"
        return "running" if self.started or self.step else "waiting"

    @property
    def _reached_end(self) -> bool:
        return self.finished is not None and self.finished.outcome == "finished"

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.status in ("finished", "stopped", "failed")

    def take(self, event: AnyEvent, heard_at: float) -> None:
        """Add one event, written at `heard_at` on this process's monotonic clock."""
        if self.heard_at is None or heard_at > self.heard_at:
            self.heard_at = heard_at
        if event.generation > self.generation:
            self._begin(event.generation)
        if event.generation < self.generation:
            if isinstance(event, Failed):
                self.earlier_failures.append(event)
            return
        match event:
            case Started():
                self.started.append(event)
                for rank in event.ranks:
                    self._worker(rank, event.node, heard_at)
            case Steps():
                self._take_steps(event)
            case Workers():
                for state in event.states:
                    # The line that said this worker started may be among the unreadable ones.
                    self._worker(state.rank, event.node, heard_at).take(state, heard_at)
            case Failed():
                self.failures.append(event)
            case Finished():
                self.finished = event
            case Ended():
                self.ended = event

    def _begin(self, generation: int) -> None:
        self.generation = generation
        self.earlier_failures += self.failures
        for column in (self.started, self.step, self.loss, self.seconds, self.samples, self.time):
            column.clear()
        self.workers.clear()
        self.failures = []
        self.finished = self.ended = None

    def _worker(self, rank: int, node: str, heard_at: float) -> Worker:
        return self.workers.setdefault(rank, Worker(rank, node, heard_at))

    def _take_steps(self, event: Steps) -> None:
        rows = list(zip(event.loss, event.seconds, event.samples, strict=False))
        end_time = event.time - sum(seconds for _, seconds, _ in rows)
        for offset, (loss, seconds, samples) in enumerate(rows):
            end_time += seconds
            self.step.append(event.first + offset)
            self.loss.append(loss)
            self.seconds.append(seconds)
            self.samples.append(samples)
            self.time.append(end_time)
