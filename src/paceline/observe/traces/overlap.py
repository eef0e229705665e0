"""Measure in a torch profile how much communication overlapped with computation.

On a CPU, a worker computes while its main thread runs an operation that does not wait for other
workers; on an accelerator, while a kernel other than NCCL's runs. torch marks Gloo's communication
as `gloo:all_reduce` and the like, from its start until its completion is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paceline.observe.traces.intervals import Interval, common, in_rows, length, union, without

STEP = "step "
"""Prefix of the mark around each step."""
WAIT = "wait for others"
"""Name of the mark around waiting for a collective."""

TraceEvent = dict[str, Any]
"""One entry of Chrome's trace format; times are in microseconds."""

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
_NUMBERS_OF_THE_PROFILER = ("External id", "Record function id", "Ev Idx", "correlation")


@dataclass(frozen=True)
class Recorded:
    """A profile of some steps of one worker; seconds are means per step."""

    steps: int
    step_seconds: float
    communication_seconds: float
    overlapped_seconds: float
    begin_unix_nanoseconds: int
    """The origin of the events' times, by the clock of the worker's node."""
    events: list[TraceEvent]


def recorded(kineto: dict[str, Any], rank: int, numbers: range) -> Recorded:
    """Extract steps from torch's profiler output, as events of a process numbered by rank."""
    written = kineto["traceEvents"]
    spans = [each for each in written if each["ph"] == "X" and each.get("cat", "Trace") != "Trace"]
    marks = {f"{STEP}{number}" for number in numbers}
    steps = [each for each in spans if _is_mark(each) and each["name"] in marks]
    window = (min(map(_begin, steps)), max(map(_end, steps)))
    spans = [each for each in spans if _begin(each) < window[1] and _end(each) > window[0]]
    communication = common(communicating(spans), [window])
    hidden = common(communication, computing(spans, main_thread=steps[0]["tid"]))
    names = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in written
        if each["ph"] == "M" and each["name"] == "thread_name"
    }
    # As integers: a Unix time in nanoseconds has more digits than a float.
    begin = int(kineto["baseTimeNanoseconds"]) + round(1e3 * window[0])
    return Recorded(
        steps=len(steps),
        step_seconds=1e-6 * (window[1] - window[0]) / len(steps),
        communication_seconds=1e-6 * length(communication) / len(steps),
        overlapped_seconds=1e-6 * length(hidden) / len(steps),
        begin_unix_nanoseconds=begin,
        events=list(_on_tracks(spans, steps[0], names, rank, window[0])),
    )


def communicating(spans: list[TraceEvent]) -> list[Interval]:
    """Return when data was in transit between this worker and others, or one end waited for it."""
    return union(_interval(each) for each in spans if _is_by_gloo(each) or _is_by_nccl(each))


def computing(spans: list[TraceEvent], main_thread: Any) -> list[Interval]:
    """Return when the worker computed."""
    kernels = [each for each in spans if each["cat"] == "kernel"]
    if kernels:
        return union(_interval(each) for each in kernels if not _is_by_nccl(each))
    own = [each for each in spans if each["tid"] == main_thread]
    operations = [each for each in own if each["cat"] == "cpu_op"]
    waits = [each for each in operations if _waits(each["name"])]
    waits += [each for each in own if _is_mark(each) and each["name"] == WAIT]
    return without(map(_interval, operations), map(_interval, waits))


def _waits(operation: str) -> bool:
    return operation.startswith("c10d::") or operation.endswith("::wait_tensor")


def _is_mark(span: TraceEvent) -> bool:
    return bool(span["cat"] == "user_annotation")


def _is_by_gloo(span: TraceEvent) -> bool:
    return _is_mark(span) and span["name"].startswith("gloo:")


def _is_by_nccl(span: TraceEvent) -> bool:
    return bool(span["cat"] == "kernel") and "nccl" in span["name"].lower()


def _begin(span: TraceEvent) -> float:
    return float(span["ts"])


def _end(span: TraceEvent) -> float:
    return float(span["ts"]) + float(span["dur"])


def _interval(span: TraceEvent) -> Interval:
    return _begin(span), _end(span)


def _on_tracks(
    spans: list[TraceEvent],
    step: TraceEvent,
    names: dict[tuple[Any, Any], str],
    rank: int,
    origin: float,
) -> Iterator[TraceEvent]:
    """Yield the names of the worker's numbered tracks, then the spans on them.

    Gloo's communication gets separate tracks: torch records sends and receives on the thread that
    starts them, where they overlap with its next work, and viewers show only nested spans.
    """
    carried = [each for each in spans if _is_by_gloo(each)]
    tracks: dict[str, int] = {"main thread": 1}

    def on_track(span: TraceEvent, name: str) -> TraceEvent:
        args = {
            key: value
            for key, value in span.get("args", {}).items()
            if key not in _NUMBERS_OF_THE_PROFILER
        }
        return {
            "ph": "X",
            "cat": span["cat"],
            "name": span["name"],
            "pid": rank,
            "tid": tracks.setdefault(name, len(tracks) + 1),
            "ts": round(_begin(span) - origin, 3),
            "dur": span["dur"],
        } | ({"args": args} if args else {})

    def track_of(span: TraceEvent) -> str:
        thread = span["pid"], span["tid"]
        if thread == (step["pid"], step["tid"]):
            return "main thread"
        if span["cat"] in _ON_DEVICE:
            return f"device {thread[0]} stream {thread[1]}"
        return names.get(thread, f"thread {thread[1]}")

    rows = in_rows([_interval(each) for each in carried])
    moved = [
        on_track(each, f"communication {row + 1}") for each, row in zip(carried, rows, strict=True)
    ]
    moved += [on_track(each, track_of(each)) for each in spans if not _is_by_gloo(each)]
    for name, number in tracks.items():
        about = {"ph": "M", "pid": rank, "tid": number, "ts": 0}
        yield about | {"name": "thread_name", "args": {"name": name}}
        yield about | {"name": "thread_sort_index", "args": {"sort_index": number}}
    yield from moved
