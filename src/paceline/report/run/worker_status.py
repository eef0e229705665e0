"""Which workers keep up, which are slow, and which have gone silent."""

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
"""A worker whose steps take longer than a few seconds is not silent between two of them."""

Word = Literal["ok", "slow", "silent", "failed", "lost peer"]
_URGENCY: dict[Word, int] = {"failed": 0, "silent": 1, "slow": 2, "lost peer": 3, "ok": 4}


@dataclass(frozen=True)
class Standing:
    """One worker among the others."""

    worker: Worker
    word: Word
    slowness: float | None
    """How long it is busy in a step, without waiting for others, over how long the median worker
    is."""
    step_seconds: float | None
    reason: str = ""
    """What a slow worker is busy longer with."""

    @property
    def text(self) -> str:
        """The word, with how long a silent worker has been silent."""
        if self.word == "silent":
            return f"silent for {self.worker.age_seconds:.0f} s"
        return f"slow: {self.reason}" if self.word == "slow" and self.reason else self.word


def standings(state: RunState) -> list[Standing]:
    """Every worker's standing, by rank: of the last steps while the run goes on, else of all."""
    over = state.over
    seconds = {rank: _step_seconds(worker, over) for rank, worker in state.workers.items()}
    parts = {rank: _parts(worker, over) for rank, worker in state.workers.items()}
    busy = {
        rank: own_seconds(parts[rank], value)
        for rank, value in seconds.items()
        if value is not None
    }
    # Of two workers the faster is the measure, else the slower would hide in their mean.
    middle = median_low(busy.values()) if busy else 0.0
    usual = usual_parts(parts) if parts else {}
    longest = max((value for value in seconds.values() if value is not None), default=0.0)
    failed = {failure.rank: failure.lost_peer for failure in reversed(state.failures)}
    # Workers of a run that waits for its next turn have ended, and are not expected to speak.
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
        found.append(Standing(worker, word, slowness, seconds[rank], why))
    return found


def listed(found: list[Standing], rows: int) -> list[Standing]:
    """All by rank; of more than `rows` those to look at first."""
    return found if len(found) <= rows else most_urgent(found, rows)


def most_urgent(found: list[Standing], rows: int) -> list[Standing]:
    """The `rows` workers to look at first: failed, silent, then the slowest."""
    return sorted(found, key=lambda one: (_URGENCY[one.word], -(one.slowness or 0.0)))[:rows]


def _step_seconds(worker: Worker, over: bool) -> float | None:
    if over:
        return worker.mean_step_seconds
    return worker.state.step_seconds if worker.state else None


def _parts(worker: Worker, over: bool) -> dict[Part, float]:
    if over:
        return worker.mean_parts
    return worker.state.parts if worker.state else {}
