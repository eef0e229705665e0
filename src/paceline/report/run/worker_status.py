"""Status of each worker: which keep up, which are slow, and which are silent."""

from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from paceline.report.reading.generation import Worker
from paceline.report.reading.run_state import RunState
from paceline.report.run.step_breakdown import SLOW_FACTOR, reason, usual_parts
from paceline.specs import Part
from paceline.specs.runs.events import own_seconds

SILENT_SECONDS = 10.0
SILENT_STEPS = 3
"""Steps without an event before a worker counts as silent, for steps longer than a few seconds."""

Word = Literal["ok", "slow", "silent", "failed", "lost peer"]
_URGENCY: dict[Word, int] = {"failed": 0, "silent": 1, "slow": 2, "lost peer": 3, "ok": 4}


@dataclass(frozen=True)
class WorkerStatus:
    """One worker's status relative to the others."""

    worker: Worker
    word: Word
    slowness: float | None
    """Its busy time per step, without waiting for others, over that of the median worker."""
    step_seconds: float | None
    reason: str = ""
    """The part of a step that takes a slow worker longer."""

    @property
    def text(self) -> str:
        """The status in words, with the duration of silence or the reason for slowness."""
        if self.word == "silent":
            return f"silent for {self.worker.age_seconds:.0f} s"
        return f"slow: {self.reason}" if self.word == "slow" and self.reason else self.word


def worker_statuses(state: RunState) -> list[WorkerStatus]:
    """Return every worker's status by rank, over the last steps while running, else over all."""
    over = state.over
    seconds = {rank: _step_seconds(worker, over) for rank, worker in state.workers.items()}
    parts = {rank: _parts(worker, over) for rank, worker in state.workers.items()}
    busy = {
        rank: own_seconds(parts[rank], value)
        for rank, value in seconds.items()
        if value is not None
    }
    # Of two workers take the faster, or the slower one would hide in their mean.
    middle = median_low(busy.values()) if busy else 0.0
    usual = usual_parts(parts) if parts else {}
    longest = max((value for value in seconds.values() if value is not None), default=0.0)
    failed = {failure.rank: failure.lost_peer for failure in reversed(state.failures)}
    # Workers of a run that waits in the queue have ended, so no event is expected from them.
    running = state.status == "running"
    found = []
    for rank, worker in sorted(state.workers.items()):
        slowness = busy[rank] / middle if rank in busy and middle > 0 else None
        word: Word = "ok"
        if rank in failed:
            word = "lost peer" if failed[rank] else "failed"
        elif running and worker.age_seconds > max(SILENT_SECONDS, SILENT_STEPS * longest):
            word = "silent"
        elif slowness is not None and slowness > SLOW_FACTOR:
            word = "slow"
        why = reason(parts[rank], usual) if word == "slow" and parts[rank] else ""
        found.append(WorkerStatus(worker, word, slowness, seconds[rank], why))
    return found


def listed(found: list[WorkerStatus], rows: int) -> list[WorkerStatus]:
    """Return all workers by rank, or only the most urgent if there are more than `rows`."""
    return found if len(found) <= rows else most_urgent(found, rows)


def most_urgent(found: list[WorkerStatus], rows: int) -> list[WorkerStatus]:
    """Return the `rows` most urgent workers: failed, silent, then the slowest."""
    return sorted(found, key=lambda one: (_URGENCY[one.word], -(one.slowness or 0.0)))[:rows]


def _step_seconds(worker: Worker, over: bool) -> float | None:
    if over:
        return worker.mean_step_seconds
    return worker.state.step_seconds if worker.state else None


def _parts(worker: Worker, over: bool) -> dict[Part, float]:
    if over:
        return worker.mean_parts
    return worker.state.parts if worker.state else {}
