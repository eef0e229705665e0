"""One thread that exchanges for a worker, in the order in which it was asked to.

Collectives of a group must be begun in the same order on all workers. Begun here, one after the
other, they are, and an exchange of several rounds may compute between them while the worker trains.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Lane:
    """Runs exchanges beside the training; on an accelerator, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.busy_seconds = 0.0
        """That exchanges took, on an accelerator without what its queue still holds."""
        self.waited_seconds = 0.0
        """That training waited for them."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-sync")
        self._stream = (
            None if device.type == "cpu" else torch.get_device_module(device.type).Stream(device)
        )

    def begin(self, exchange: Callable[[], Result]) -> "Future[Result]":
        """Queue an exchange; it sees what was computed up to now."""
        if self._stream is None:
            return self._thread.submit(self._timed, exchange)
        ready = torch.get_device_module(self._device.type).current_stream().record_event()
        return self._thread.submit(self._on_stream, exchange, ready)

    def finish(self, begun: "Future[Result]") -> Result:
        """Wait for an exchange; what is computed from now on sees its result."""
        began = time.perf_counter()
        result = begun.result()
        self.waited_seconds += time.perf_counter() - began
        if self._stream is not None:
            torch.get_device_module(self._device.type).current_stream().wait_stream(self._stream)
        return result

    def close(self) -> None:
        """End the thread, once what was begun is done."""
        self._thread.shutdown()

    def _on_stream(self, exchange: Callable[[], Result], ready: torch.Event) -> Result:
        device = torch.get_device_module(self._device.type)
        device.set_device(self._device)
        with device.stream(self._stream):
            self._stream.wait_event(ready)  # type: ignore[union-attr]
            return self._timed(exchange)

    def _timed(self, exchange: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        try:
            return exchange()
        finally:
            self.busy_seconds += time.perf_counter() - began
