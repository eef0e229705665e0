"""One thread that communicates for a worker, in program order.

All workers must start the collectives of a group in the same order; a single thread ensures this. A
task of several collectives may compute between them while the worker trains.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Lane:
    """Runs communication in parallel with training; on an accelerator, on a separate stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.busy_seconds = 0.0
        """Time spent communicating; on an accelerator, without work that is still queued."""
        self.waited_seconds = 0.0
        """Time that training waited for communication."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-sync")
        self._stream = (
            None if device.type == "cpu" else torch.get_device_module(device.type).Stream(device)
        )

    def begin(self, task: Callable[[], Result]) -> "Future[Result]":
        """Queue a task; it sees the results of all computation before this call."""
        if self._stream is None:
            return self._thread.submit(self._timed, task)
        ready = torch.get_device_module(self._device.type).current_stream().record_event()
        return self._thread.submit(self._on_stream, task, ready)

    def finish(self, begun: "Future[Result]") -> Result:
        """Wait for a task; all computation after this call sees its result."""
        began = time.perf_counter()
        result = begun.result()
        self.waited_seconds += time.perf_counter() - began
        if self._stream is not None:
            torch.get_device_module(self._device.type).current_stream().wait_stream(self._stream)
        return result

    def close(self) -> None:
        """Stop the thread after the queued tasks."""
        self._thread.shutdown()

    def _on_stream(self, task: Callable[[], Result], ready: torch.Event) -> Result:
        device = torch.get_device_module(self._device.type)
        device.set_device(self._device)
        with device.stream(self._stream):
            self._stream.wait_event(ready)  # type: ignore[union-attr]
            return self._timed(task)

    def _timed(self, task: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        try:
            return task()
        finally:
            self.busy_seconds += time.perf_counter() - began
