"""Merge the generations of a run: which steps count, and which interruptions lie between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline.report.reading.generation import Columns, Generation
from paceline.report.reading.metric_series import MetricSeries
from paceline.specs import Failed, Finished, Lost, Regrouped, worker_in_words

RECENT_STEPS = 50


@dataclass(frozen=True)
class Interruption:
    """An end of training that was not the end of the run."""

    generation: int
    """The generation that it interrupted."""
    cause: str
    reached: int
    """The last known step before it."""
    at: float
    """When training last made progress, in Unix seconds."""
    workers: int | None
    resumed: int | None = None
    """The step that the next start continued from, 0 for the beginning; None until it does."""
    back_at: float | None = None
    """When the next start began to train."""
    workers_after: int | None = None
    regrouped: Regrouped | None = None
    """The survivors' regroup; None if the run was restarted."""
    again_seconds: float = 0.0
    """Original duration of the steps that were repeated."""
    unwritten_seconds: float = 0.0
    """Estimated duration of steps that count but that no survivor could report."""

    @property
    def lost_steps(self) -> int | None:
        """Number of steps that had to be repeated."""
        return None if self.resumed is None else max(0, self.reached - self.resumed)

    @property
    def away_seconds(self) -> float | None:
        """Seconds without training."""
        return None if self.back_at is None else max(0.0, self.back_at - self.at)

    @property
    def lost_seconds(self) -> float | None:
        """How much longer the run takes because of it, in seconds."""
        away = self.away_seconds
        return None if away is None else away + self.again_seconds


@dataclass(frozen=True)
class RunHistory:
    """All generations of a run, merged."""

    columns: Columns
    """The steps that count; of a repeated step, only the later generation's."""
    interruptions: list[Interruption]
    metrics: MetricSeries


def merge_generations(starts: Sequence[Generation]) -> RunHistory:
    """Merge generations, given in their order.

    A start that ended before it trained interrupted nothing: it belongs to the interruption before
    it.
    """
    if len(starts) == 1 and not _awaits_another(starts):
        return RunHistory(starts[0].columns, [], starts[0].metrics)
    columns, metrics = Columns(), MetricSeries()
    found: list[Interruption] = []
    trained = [number for number, start in enumerate(starts) if start.trained]
    for place, number in enumerate(trained):
        start = starts[number]
        after = trained[place + 1] if place + 1 < len(trained) else None
        resumed = _resumed(start, starts[trained[place - 1]] if place else None)
        if resumed is not None:
            columns.cut(resumed)
            metrics.cut(resumed)
        columns.extend(start.columns)
        metrics.extend(start.metrics)
        regrouped = starts[after].regrouped if after is not None else None
        if after is not None and regrouped is not None:
            cause = _cause_of_regroup(starts[number:after], regrouped)
            found.append(_regroup(start, regrouped, columns, cause))
        elif number < len(starts) - 1 or _awaits_another(one_start(starts)):
            next_start = starts[after] if after is not None else None
            found.append(_restart(one_start(starts[: number + 1]), next_start, columns))
    return RunHistory(columns, found, metrics)


def one_start(generations: Sequence[Generation]) -> Sequence[Generation]:
    """Return the last generations that ran within the same processes."""
    first = len(generations) - 1
    while first > 0 and generations[first].regrouped is not None:
        first -= 1
    return generations[first:]


def finished(start: Sequence[Generation]) -> Finished | None:
    """Return the `Finished` event of a start, from the latest generation that has one."""
    return next((each.finished for each in reversed(start) if each.finished), None)


def _resumed(start: Generation, before: Generation | None) -> int | None:
    """Return the step that a generation continued from. After a lost worker the regroup may not be
    written yet, so a generation without steps counts as unknown rather than as the beginning."""
    silent = start.regrouped is None and not start.columns.step and not start.resumed
    if silent and before is not None and any(isinstance(each, Lost) for each in before.faults):
        return None
    return start.resumed


def _restart(
    before: Sequence[Generation], after: Generation | None, columns: Columns
) -> Interruption:
    resumed = _resumed(after, before[-1]) if after else None
    return Interruption(
        generation=before[-1].generation,
        cause=_cause_of_end(before),
        reached=columns.step[-1] if columns.step else 0,
        at=before[-1].last_time,
        workers=before[-1].number_of_workers,
        resumed=resumed,
        back_at=after.began_time if after else None,
        workers_after=after.number_of_workers if after else None,
        again_seconds=columns.seconds_after(resumed) if resumed is not None else 0.0,
    )


def _regroup(
    before: Generation, regrouped: Regrouped, columns: Columns, cause: str
) -> Interruption:
    """Return the interruption for a regroup; if worker 0 died before it reported its last steps,
    only their number is known, and their duration is estimated."""
    written = columns.step[-1] if columns.step else 0
    reached = max(written, regrouped.step + regrouped.steps_again)
    recent = columns.seconds[-RECENT_STEPS:]
    pace = median(recent) if recent else 0.0
    left = regrouped.time - regrouped.seconds
    known = before.columns.time[-1] if before.columns.step else before.began_time
    room = 0.0 if known is None else max(0.0, left - known)
    counted = min(room, pace * max(0, regrouped.step - written))
    again = min(room - counted, pace * (reached - max(written, regrouped.step)))
    return Interruption(
        generation=before.generation,
        cause=cause,
        reached=reached,
        at=left - room + counted + again,
        workers=before.number_of_workers,
        resumed=regrouped.step,
        back_at=regrouped.time,
        workers_after=regrouped.workers,
        regrouped=regrouped,
        again_seconds=columns.seconds_after(regrouped.step) + again,
        unwritten_seconds=counted,
    )


def _cause_of_regroup(generations: Sequence[Generation], regrouped: Regrouped) -> str:
    """Describe the worker that was lost first; one cause often takes out several workers."""
    lost = [each for start in generations for each in start.faults if isinstance(each, Lost)]
    if not lost:
        return regrouped.why
    first = min(lost, key=lambda each: (each.generation, each.time, each.rank))
    others = len({(each.generation, each.rank) for each in lost}) - 1
    words = f"worker {first.rank} on {first.lost_node} lost"
    if others:
        words += f", and {others} more"
    return f"{words}: {first.why}"


def _cause_of_end(start: Sequence[Generation]) -> str:
    """Return in a few words why a start ended before the end of the run."""
    done = finished(start)
    if done is not None:
        causes = {"interrupted": "time limit", "preempted": "preempted", "stopped": "stopped"}
        return causes.get(done.outcome, "restarted after its end")
    first = first_failure(start[-1].failures)
    if first is not None and not first.lost_peer:
        return f"{worker_in_words(first.rank)}: {(first.message.splitlines() or ['failed'])[0]}"
    if first is not None:
        return "a worker was lost"
    ended = next((each.ended for each in reversed(start) if each.ended), None)
    if ended is not None and ended.exit_code:
        return f"exit code {ended.exit_code}"
    return "cut off"


def first_failure(failures: Sequence[Failed]) -> Failed | None:
    """Return the first failure, preferring one that is not the consequence of another."""
    return min(failures, key=lambda each: (each.lost_peer, each.time), default=None)


def _awaits_another(start: Sequence[Generation]) -> bool:
    """Return whether the scheduler ended it and queued it again."""
    done = finished(start)
    ended = any(each.ended is not None for each in start)
    return done is not None and done.outcome in ("interrupted", "preempted") and not ended
