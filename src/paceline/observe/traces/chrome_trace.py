"""Traces of workers in Chrome's trace format, and a joined trace of all workers on one clock.

Every event is a separate line in the file, so that joining the traces of many workers needs little
memory.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO, cast

from pydantic import Field

from paceline.observe.traces.overlap import TraceEvent
from paceline.specs import PacelineError, Run, Traced
from paceline.specs.base import Spec
from paceline.specs.line_files import whole_lines
from paceline.specs.owned_files import make_folder, open_owned

_LEVEL = 5
"""gzip level: nearly as small as the highest, in a fraction of the time."""
_MOST_LINE_BYTES = 1 << 20
"""Maximum size of an event, which has some hundred bytes."""
_MOST_BYTES = 4 << 30
"""Maximum size of a worker's trace, uncompressed: that of ten million events."""
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    RecursionError,
    zlib.error,
)
"""What reading bytes that no worker wrote can raise."""


class WorkerTrace(Spec):
    """The header of a worker's trace, before its events."""

    traced: Traced
    begin_unix_nanoseconds: Annotated[int, Field(ge=0, lt=2**63)]
    """The origin of the events' times, by the clock of the worker's node."""

    @property
    def begin_on_worker_0(self) -> int:
        """The same origin by the clock of worker 0's node."""
        return self.begin_unix_nanoseconds - round(1e9 * self.traced.clock_offset_seconds)


def write_worker_trace(run: Run, about: WorkerTrace, events: Iterable[TraceEvent]) -> None:
    """Write a worker's trace into the run's folder; rename it into place once complete."""
    make_folder(run.trace, exist_ok=True)
    path = run.trace / f"{about.traced.node}-{about.traced.rank}.json.gz"
    draft = path.with_suffix(".draft")
    try:
        open_owned(draft, "w").close()
        _write(draft, about.model_dump(mode="json"), events)
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def worker_traces(run: Run) -> dict[Path, WorkerTrace]:
    """Return the trace files of the newest traced generation, by rank, with their headers."""
    found = {path: _head(path) for path in run.trace.glob("*.json.gz")}
    if not found:
        raise PacelineError(
            f"{run.path} has no trace: nothing was recorded",
            fix="give --trace 5 to `paceline run` or `paceline submit`, which records 5 steps",
        )
    newest = max(each.traced.generation for each in found.values())
    mine = {path: each for path, each in found.items() if each.traced.generation == newest}
    return dict(sorted(mine.items(), key=lambda item: item[1].traced.rank))


def join_traces(traces: dict[Path, WorkerTrace], output: Path) -> None:
    """Write one file with the events of all workers, by the clock of worker 0's node.

    Times count from the first event; the header says when that was.
    """
    origin = min(each.begin_on_worker_0 for each in traces.values())
    about = {
        "clock": "of worker 0's node",
        "begin_unix_nanoseconds": origin,
        "workers": [each.traced.model_dump(mode="json") for each in traces.values()],
    }
    try:
        _write(output, about, _joined(traces, origin))
    except PacelineError:
        output.unlink(missing_ok=True)
        raise


def _joined(traces: dict[Path, WorkerTrace], origin: int) -> Iterator[TraceEvent]:
    for path, each in traces.items():
        rank = each.traced.rank
        about = {"ph": "M", "pid": rank, "tid": 0, "ts": 0}
        name = f"worker {rank} on node {each.traced.node}"
        yield about | {"name": "process_name", "args": {"name": name}}
        yield about | {"name": "process_sort_index", "args": {"sort_index": rank}}
        later = (each.begin_on_worker_0 - origin) / 1e3
        for event in _events(path):
            if event["ph"] != "M":
                event["ts"] = round(event["ts"] + later, 3)
            yield event


def _write(path: Path, about: dict[str, Any], events: Iterable[TraceEvent]) -> None:
    with _opened(path) as file:
        head = json.dumps({"displayTimeUnit": "ms", "paceline": about, "traceEvents": []})
        file.write(head.removesuffix("]}"))
        for number, event in enumerate(events):
            file.write((",\n" if number else "\n") + json.dumps(event))
        file.write("\n]}\n")


def _head(path: Path) -> WorkerTrace:
    with _reading(path) as lines:
        return WorkerTrace.model_validate(json.loads(next(lines) + b"]}")["paceline"])


def _events(path: Path) -> Iterator[TraceEvent]:
    with _reading(path) as lines:
        next(lines)
        for line in lines:
            if line != b"]}\n":
                yield _event(json.loads(line.rstrip(b",\n")))


def _event(said: Any) -> TraceEvent:
    """Return an event that has what all events have."""
    if not isinstance(said, dict) or not isinstance(said["ph"], str):
        raise TypeError("it is no event")
    return said | {"ts": float(said["ts"])}


@contextmanager
def _reading(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a worker's trace to read its lines; name the file if it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            yield _lines(cast("BinaryIO", file))
    except _DAMAGE as error:
        raise PacelineError(
            f"{path} can't be read as a worker's trace: {type(error).__name__}",
            fix="remove that file to merge the others",
        ) from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a trace, which a few bytes of gzip can make endless."""
    total = 0
    for line in whole_lines(file, _MOST_LINE_BYTES):
        total += len(line)
        if total > _MOST_BYTES:
            raise ValueError("it is too long")
        yield line
    if total == 0:
        raise EOFError


def _opened(path: Path) -> TextIO:
    """Open a file to write text; compress it unless its name ends in .json."""
    if path.suffix == ".json":
        return path.open("w")
    return gzip.open(path, "wt", compresslevel=_LEVEL, encoding="utf-8")
