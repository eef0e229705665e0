"""Copies between host and device for which neither waits.

The host queues work and runs ahead of an accelerator; a read would stop it until all that is done.
"""

from functools import cache

import torch
import torch.distributed as dist


def queued_to(device: torch.device, values: torch.Tensor) -> torch.Tensor:
    """Return values of the host on a device; through pinned memory, since others may wait."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)


def wait_for_queued(device: torch.device) -> None:
    """Wait until an accelerator has done what this thread has queued on its current stream."""
    if device.type != "cpu":
        torch.accelerator.current_stream(device).record_event().synchronize()


@cache
def _reading_stream(device: torch.device) -> torch.Stream:
    return torch.Stream(device)


class StateCopies:
    """Copies of the training state to pinned memory of the host, on a stream of their own.

    The device goes on with the next forward meanwhile; only what changes the state waits for them,
    on the device. One object per process.
    """

    def __init__(self) -> None:
        self._stream: torch.Stream | None = None
        self._running = False

    def begin(self, sources: list[torch.Tensor], targets: list[torch.Tensor]) -> torch.Event | None:
        """Start to copy tensors as they are at this point of the device's queue.

        Return the event that ends it; None if the sources are on the host, and it is done.
        """
        device = next((each.device for each in sources if each.device.type != "cpu"), None)
        if device is None:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)
            return None
        self._stream = self._stream or torch.Stream(device)
        self._running = True
        self._stream.wait_stream(torch.accelerator.current_stream(device))
        with self._stream:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
                if source.device.type != "cpu":
                    source.record_stream(self._stream)
            return self._stream.record_event()

    def let_end(self) -> None:
        """Let what this thread queues from now on wait for the copies, on the device."""
        if self._running and self._stream is not None:
            self._running = False
            torch.accelerator.current_stream(self._stream.device).wait_stream(self._stream)


state_copies = StateCopies()


class DelayedReading:
    """A device's values on their way to the host, at first perhaps not yet computed.

    On an accelerator, a stream of its own waits for `work`, a sum of the values that other workers
    may join late, and copies the result to pinned memory. Training does not wait meanwhile.
    """

    def __init__(self, values: torch.Tensor, work: "dist.Work | None" = None) -> None:
        self._values, self._work = values, work
        self._arrival: torch.Event | None = None
        if values.device.type == "cpu":
            return
        stream = _reading_stream(values.device)
        if work is None:
            stream.wait_stream(torch.accelerator.current_stream(values.device))
        with stream:
            if work is not None:
                work.wait()
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._arrival = stream.record_event()
        # The values stay referenced until they are read, so the stream needs no `record_stream`.

    @property
    def is_there(self) -> bool:
        """Whether `values` would not wait."""
        if self._arrival is not None:
            return self._arrival.query()
        return self._work is None or self._work.is_completed()

    def values(self) -> torch.Tensor:
        """Return the values in the memory of the host; wait for them if they are not there."""
        arrival = self._arrival
        if arrival is not None:
            if not arrival.query():
                arrival.synchronize()
            self._values = self._host
        elif self._work is not None:
            self._work.wait()
        self._work = None
        return self._values
