"""Communication of a worker beside its training, in program order.

All workers must start the collectives of a device in the same order, whatever group they are in:
different orders deadlock NCCL. An accelerator queues collectives, so the training's own thread
starts them, on a stream of their own. On a CPU they block, and a single thread waits for them.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class Lane:
    """Runs communication in parallel with training: on a stream of the device, or on a thread.

    `waits_on_host`: tasks wait for other workers on the host, so that an accelerator needs the
    thread, too.
    """

    def __init__(self, device: torch.device, *, waits_on_host: bool = False) -> None:
        self._device = device
        self.busy_seconds = 0.0
        """Time spent communicating; on an accelerator, without work that is still queued."""
        self.waited_seconds = 0.0
        """Time that training waited for communication."""
        on_cpu = device.type == "cpu"
        self._thread = (
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-sync")
            if on_cpu or waits_on_host
            else None
        )
        self._stream = None if on_cpu else torch.get_device_module(device.type).Stream(device)
        self._queued: list[Callable[[], Any]] = []
        """Tasks whose work may be queued, with the tensors that it uses."""

    def begin(self, task: Callable[[], Result]) -> "Future[Result]":
        """Queue a task; it sees the results of all computation before this call."""
        if self._stream is None:
            return self._submit(self._timed, task)
        if self._thread is None:
            self._queued.append(task)
        ready = torch.get_device_module(self._device.type).current_stream().record_event()
        return self._submit(self._on_stream, task, ready)

    def finish(self, begun: "Future[Result]") -> Result:
        """Wait for a task; all computation after this call sees its result."""
        began = time.perf_counter()
        result = begun.result()
        self.waited_seconds += time.perf_counter() - began
        if self._stream is not None:
            torch.get_device_module(self._device.type).current_stream().wait_stream(self._stream)
            self._queued.clear()
        return result

    def close(self) -> None:
        """Stop the thread after the queued tasks."""
        if self._thread is not None:
            self._thread.shutdown()

    def _submit(self, run: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        if self._thread is not None:
            return self._thread.submit(run, *arguments)
        done: Future[Result] = Future()
        try:
            done.set_result(run(*arguments))
        except Exception as error:  # raised where the result is asked for, as by a thread
            done.set_exception(error)
        return done

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
