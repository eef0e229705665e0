"""Traces of workers, as `paceline trace` joins them; what gzip holds is what is mutated."""

import gzip
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing.target import Target
from paceline.observe.traces.chrome_trace import (
    WorkerTrace,
    join_traces,
    worker_traces,
    write_worker_trace,
)
from paceline.specs import PacelineError, Run, Traced
from report.folders import empty_run

FILE = "n1-0.json.gz"
TRACED = Traced(
    time=1.79e9,
    node="n1",
    rank=0,
    first=6,
    steps=2,
    step_seconds=0.02,
    communication_seconds=0.008,
    overlapped_seconds=0.006,
    clock_offset_seconds=0.5,
    clock_uncertainty_seconds=2e-4,
)
EVENTS = (
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 2, "ts": 0, "args": {"name": "main"}},
    {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 0, "tid": 2, "ts": 1000.0, "dur": 5.0},
)


def consume(data: bytes, folder: Path) -> None:
    """Join the trace of one worker."""
    found = next(folder.glob("*/trace"), None)
    run = Run(found.parent) if found else empty_run(folder)
    run.trace.mkdir(exist_ok=True)
    (run.trace / FILE).write_bytes(gzip.compress(data, compresslevel=0))
    with suppress(PacelineError):
        join_traces(worker_traces(run), folder / "trace.json")


def seeds() -> list[bytes]:
    """Return the trace of a worker."""
    with TemporaryDirectory() as folder:
        run = empty_run(Path(folder))
        about = WorkerTrace(traced=TRACED, begin_unix_nanoseconds=1_790_000_000_000_000_000)
        write_worker_trace(run, about, EVENTS)
        return [gzip.decompress((run.trace / FILE).read_bytes())]


TARGET = Target(seeds, consume)
