"""Profiling of a few steps with torch's profiler, on several workers at once."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import profile, record_function

from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import ProfilerConfig, profiler_runs
from paceline.observe.event_writer import EventWriter
from paceline.observe.traces.chrome_trace import WorkerTrace, write_worker_trace
from paceline.observe.traces.overlap import STEP, WAIT, recorded
from paceline.specs import PacelineError, Run, Traced
from paceline.train.monitor.clock_offset import ClockOffset, clock_offset

WARM_UP_STEPS = 5
"""Steps to skip before profiling, if the run is long enough: the first allocate and connect."""
MOST_WORKERS = 16
"""Maximum number of profiled workers, evenly spaced over the ranks. Thousands of trace files would
slow a shared file system, and no one could read them all."""


def recording_ranks(workers: int) -> list[int]:
    """Return the ranks to profile; rank 0 is always one of them."""
    count = min(workers, MOST_WORKERS)
    return [number * workers // count for number in range(count)]


class Tracing:
    """Profiling of some steps of a run; all workers call it at every step."""

    def __init__(self, run: Run, groups: Groups, writer: EventWriter, steps: int) -> None:
        self._run = run
        self._groups = groups
        self._writer = writer
        self._steps = steps
        """Steps left to profile."""
        self._begin = 0
        """Profiling begins after this step."""
        self._done = 0
        self._recorder: _Recorder | None = None
        self._offset = ClockOffset()

    def started(self, done: int, last: int) -> None:
        """Choose the steps to profile out of those after `done` up to `last`."""
        self._done = done
        self._begin = done + min(WARM_UP_STEPS, max(0, last - done - self._steps))
        self._start_if_due()

    def stepped(self) -> None:
        """Count a step, and start or stop profiling if due."""
        self._done += 1
        if self._recorder is not None:
            self._steps -= 1
            if self._steps:
                self._recorder.next_step(self._done + 1)
            else:
                self.end()
        self._start_if_due()

    def end(self) -> None:
        """Stop a running profiler and write its trace; the run may end before the planned step."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        placement, written = self._groups.placement, recorder.stop()
        if self._done == self._begin:
            return
        found = recorded(written, placement.rank, range(self._begin + 1, self._done + 1))
        traced = Traced(
            time=time.time(),
            node=placement.node,
            generation=placement.generation,
            rank=placement.rank,
            first=self._begin + 1,
            steps=found.steps,
            step_seconds=found.step_seconds,
            communication_seconds=found.communication_seconds,
            overlapped_seconds=found.overlapped_seconds,
            clock_offset_seconds=self._offset.seconds,
            clock_uncertainty_seconds=self._offset.uncertainty_seconds,
        )
        about = WorkerTrace(traced=traced, begin_unix_nanoseconds=found.begin_unix_nanoseconds)
        try:
            write_worker_trace(self._run, about, found.events)
        except OSError as error:  # the disk is full: a trace is not worth the run
            print(f"the trace could not be written: {error}", file=sys.stderr)
            return
        self._writer.write(traced)

    def _start_if_due(self) -> None:
        if self._done != self._begin:
            return
        placement, ranks = self._groups.placement, recording_ranks(self._groups.placement.workers)
        if placement.rank in ranks:
            self._recorder = _Recorder(self._groups.device)
            self._offset = clock_offset(self._groups, ranks)
        # Start times of profilers differ: without this barrier, the first step would show it.
        self._groups.sum(torch.zeros(1, device=self._groups.device)).item()
        if self._recorder is not None:
            self._recorder.next_step(self._done + 1)


class _Recorder:
    """A running profiler of this worker's threads and device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._step: Any = None
        if profiler_runs():
            raise PacelineError(
                "--trace was given, but the training runs its own profiler, and torch allows one",
                fix="leave out --trace, or the profiler",
            )
        device_kind().synchronize(device)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints when it starts and stops
        # Some synchronization modes communicate on a separate thread.
        every_thread = ProfilerConfig(profile_all_threads=True)
        self._profiler = profile(experimental_config=every_thread)
        self._profiler.start()
        self._stack = ExitStack()
        self._stack.enter_context(_marked_waits())

    def next_step(self, number: int) -> None:
        """Mark the start of a step and the end of the one before."""
        self._close_step()
        self._step = record_function(f"{STEP}{number}")
        self._step.__enter__()

    def stop(self) -> dict[str, Any]:
        """Stop profiling and return torch's trace."""
        device_kind().synchronize(self._device)
        self._close_step()
        self._stack.close()
        self._profiler.stop()
        with tempfile.TemporaryDirectory(prefix="paceline-trace-") as folder:
            file = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(file))
            written: dict[str, Any] = json.loads(file.read_bytes())
            return written

    def _close_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)


@contextmanager
def _marked_waits() -> Iterator[None]:
    """Mark waits for collectives in the trace.

    Without the marks, a wait inside an operation, as in FSDP's backward, looks like computation.
    """
    wait = dist.Work.wait

    def marked(work: dist.Work, *arguments: Any, **named: Any) -> Any:
        with record_function(WAIT):
            return wait(work, *arguments, **named)

    dist.Work.wait = marked  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        dist.Work.wait = wait  # type: ignore[method-assign]
