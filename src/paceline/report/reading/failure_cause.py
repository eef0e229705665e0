"""Find why a run failed: the worker that failed first, and the last lines of its log."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.report.reading.run_state import RunState
from paceline.schedulers.scheduler import SCHEDULERS
from paceline.specs import JOINS, Run, worker_in_words
from paceline.specs.error_topics import TOPICS
from paceline.specs.runs.events import Failed

LOG_LINES = 15
TAIL_BYTES = 1 << 20
"""Bytes read from the end of a log, which can be gigabytes long, to find a rank's last lines."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class FailureCause:
    """The worker that failed first; `node` and `rank` are None if no source names them."""

    node: str | None
    rank: int | None
    message: str
    log_lines: list[str]
    log_file: Path | None
    topic: str | None = None
    """Topic of `paceline help` that explains the error, if Paceline raised it."""

    @property
    def where(self) -> str:
        """The worker's rank and node in words."""
        if self.rank is None:
            return "the job" if self.node is None else f"node {self.node}"
        return worker_in_words(self.rank) + (f" on node {self.node}" if self.node else "")


def cause(state: RunState, run: Run) -> FailureCause | None:
    """Return the cause of the run's failure, or None if no worker failed and the job ended well.

    A worker that raised an error takes precedence over one that was killed, and a killed worker
    over one that only lost its peer.
    """
    failures = sorted(state.failures, key=lambda failure: (failure.lost_peer, failure.time))
    if failures and not failures[0].lost_peer:
        return _of_worker(run, failures[0])
    if state.status != "failed":
        return None
    failures = sorted(state.last_failures, key=lambda failure: (failure.lost_peer, failure.time))
    found = _from_batch_log(run, victims={failure.rank for failure in failures})
    if found is not None:
        return found
    if failures:
        return _of_worker(run, failures[0])
    code = state.ended.exit_code if state.ended else "unknown"
    when = " after the last step" if state.finished else ""
    message = f"the job ended with exit code {code}{when}; no worker reported a cause"
    log = run.batch_log
    return FailureCause(None, None, message, list(_tail(log))[-LOG_LINES:], _existing(log))


def plain(text: str) -> str:
    """Remove terminal control sequences and colors from text that a user's program wrote."""
    return _CONTROL.sub("", _ANSI.sub("", text))


def _from_batch_log(run: Run, victims: set[int]) -> FailureCause | None:
    """Return the first task failure in the job's log that is not of a rank in `victims`."""
    name = run.job.scheduler
    if name is None or name not in SCHEDULERS:  # the report may be made on another machine
        return None
    scheduler = SCHEDULERS.get(name)
    for line in _tail(run.batch_log):
        failure = scheduler.task_failure(line)
        if failure is None:
            continue
        if not failure.ranks:
            return _with_log(run, failure.node, None, failure.message)
        for rank in failure.ranks:
            if rank not in victims:
                return _with_log(run, failure.node, rank, failure.message)
    return None


def _of_worker(run: Run, failure: Failed) -> FailureCause:
    found = _with_log(run, failure.node, failure.rank, failure.message)
    return replace(found, topic=failure.topic if failure.topic in TOPICS else None)


def _with_log(run: Run, node: str, rank: int | None, message: str) -> FailureCause:
    log = run.logs / f"{Path(node).name}.log"
    # The rank may be padded to the width of the highest one.
    led = re.compile(r"\s*(\d+|joins): ?(.*)")
    lines = []
    for line in _tail(log):
        match = led.match(line)
        if rank is None or match is None:
            lines.append(line)
        elif (JOINS if match[1] == "joins" else int(match[1])) == rank:
            lines.append(match[2])
    return FailureCause(node, rank, plain(message), lines[-LOG_LINES:], _existing(log))


def _existing(log: Path) -> Path | None:
    return log if log.is_file() else None


def _tail(log: Path) -> Iterator[str]:
    if not log.is_file():
        return
    with log.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        text = stream.read().decode(errors="replace")
    for line in text.splitlines():
        yield plain(line)
