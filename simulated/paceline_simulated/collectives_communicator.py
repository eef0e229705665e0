"""A communicator: the ranks of a group on one device, connected at the first collective."""

import threading
import weakref
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from paceline_simulated import core
from paceline_simulated.collectives_kernel import Begin, Kernel
from paceline_simulated.collectives_launch_order import launch_order
from paceline_simulated.collectives_transport import Transfer, Transport

_stranded: list[tuple[Transport, list[Kernel]]] = []
"""Aborted transports that still wait for a peer. Their destructor would wait, too."""
_living: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


class Communicator:
    """One rank's end of a communicator. Communicators split from it are independent of it."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank, self.size = rank, size
        self.timeout = timeout
        self._store = store
        self._transport: Transport | None = None
        self._streams: dict[torch.device, torch.Stream] = {}
        self._kernels: list[Kernel] = []
        self._aborted = False
        self._connecting = threading.Lock()
        self._lock = threading.RLock()
        _living.add(self)

    @property
    def is_connected(self) -> bool:
        """Whether the first collective, or an eager start, has connected the ranks."""
        return self._transport is not None

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that have not ended."""
        with self._lock:
            return list(self._kernels)

    def connect(self) -> None:
        """Connect to the other ranks; the host waits for them, as in `ncclCommInitRank`."""
        with self._connecting:  # not the other lock: an abort must not wait for it
            self._check_usable()
            if self._transport is None:
                _bury()
                transport = Transport(self._store, self.rank, self.size, self.timeout)
                with self._lock:
                    self._check_usable()
                    self._transport = transport

    def queue(
        self,
        name: str,
        tensors: list[torch.Tensor],
        begin: Begin,
        outputs: list[torch.Tensor],
        *,
        blocks_host: bool = False,
    ) -> "dist.Work":
        """Queue a collective on the communication stream, behind the current stream."""
        device = tensors[0].device
        self.connect()
        with self._lock:
            self._check_usable()
            stream = self._stream(device)
            stream.wait_stream(torch.accelerator.current_stream(device))
            kernel = Kernel(name, begin, launch_order(device.index), device)
            self._kernels.append(kernel)
            with stream:
                kept = list(tensors)
                core.enqueue(device.index, self._runner(kernel, kept))
                return core.queued_work(device, outputs, kept, blocks_host=blocks_host)

    def abort(self) -> None:
        """Release all kernels and refuse new ones; from any thread, also while others wait."""
        self._aborted = True
        with self._lock:
            kernels, self._kernels = self._kernels, []
            transport, self._transport = self._transport, None
        for kernel in kernels:
            kernel.abort()
        if transport is not None:
            _stranded.append((transport, kernels))

    def shutdown(self) -> None:
        """Wait for the queued collectives, and disconnect."""
        if self._aborted:
            return
        for stream in self._streams.values():
            stream.synchronize()
        self._aborted = True
        self._transport = None

    def _runner(self, kernel: Kernel, kept: list[torch.Tensor]) -> Callable[[], None]:
        transport = self._transport
        assert transport is not None

        def run() -> None:
            kernel.run(transport)
            kept.clear()  # of a work that nobody waits for
            with self._lock:
                if kernel in self._kernels:
                    self._kernels.remove(kernel)

        return run

    def _stream(self, device: torch.device) -> torch.Stream:
        if device not in self._streams:
            self._streams[device] = torch.Stream(device=device)
        return self._streams[device]

    def _check_usable(self) -> None:
        if self._aborted:
            raise dist.DistBackendError(f"simccl: the communicator of rank {self.rank} was aborted")


def launch_unmatched(device: torch.device) -> None:
    """Launch a collective that no peer launches, as where ranks launch in different orders.

    It occupies the device until its communicator is aborted.
    """

    def begin(transport: Transport) -> Transfer:
        raise RuntimeError("the peers have launched other collectives before")

    connected = next(each for each in _living if each.is_connected)
    connected.queue("unmatched", [torch.zeros(1, device=device)], begin, [])


def _bury() -> None:
    """Let go of aborted transports whose last transfer has ended meanwhile."""
    _stranded[:] = [
        (transport, kernels)
        for transport, kernels in _stranded
        if any(kernel.is_stranded for kernel in kernels)
    ]
