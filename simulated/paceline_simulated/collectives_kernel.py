"""A queued collective: runs on its communicator's stream, on a scratch copy of its tensors.

The transport (Gloo) works on the copy, so that only the kernel writes device memory. A kernel that
is aborted writes back a part of what the transport has reached, and raises nothing: the stream goes
on with partial sums, as after `ncclCommAbort`.
"""

import threading
import time
from collections.abc import Callable

import torch

from paceline_simulated.collectives_launch_order import LaunchOrder
from paceline_simulated.collectives_transport import Transfer, Transport

Begin = Callable[[Transport], Transfer]
"""Begins a collective on the transport, when its stream reaches it."""


class Kernel:
    """One collective, or several that were coalesced."""

    def __init__(self, name: str, begin: Begin, order: LaunchOrder, device: torch.device) -> None:
        self.name, self.device = name, device
        self.launched_at = time.monotonic()
        self.error: str | None = None
        """Why the transport failed, as NCCL's asynchronous error: the kernel waits nevertheless."""
        self.transfer = Transfer()
        self._begin, self._order = begin, order
        self._aborted = False
        self._woken = threading.Event()
        order.launch(self)

    def run(self, transport: Transport) -> None:
        """Run on the thread of the stream, until the collective is done or aborted."""
        try:
            self._order.wait_for_turn(self, lambda: self._aborted)
            if not self._aborted:
                self._communicate(transport)
        finally:
            self._order.end(self)

    def abort(self) -> None:
        """Let the kernel end, from any thread."""
        self._aborted = True
        self._woken.set()
        self._order.wake()

    @property
    def is_stranded(self) -> bool:
        """Whether the transport still waits for a peer."""
        return not all(each.ended.is_set() for each in self.transfer.pending)

    def _communicate(self, transport: Transport) -> None:
        try:
            self.transfer = self._begin(transport)
        except RuntimeError as error:  # the connection is gone
            self.error = str(error)
        for each in self.transfer.pending:
            each.watch(self._look)
        if not self.transfer.pending:
            self._look()
        self._woken.wait()
        for result in self.transfer.results:
            if self._aborted:
                result.write_partly()
            else:
                result.write()

    def _look(self) -> None:
        """Wake the kernel when all transfers are done; after a failure only an abort does."""
        if self.is_stranded:
            return
        errors = [each.error for each in self.transfer.pending if each.error]
        self.error = self.error or next(iter(errors), None)
        if self.error is None:
            self._woken.set()
