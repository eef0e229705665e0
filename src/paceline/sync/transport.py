"""Collectives between the replicas of a part of a model, and the bytes that they send.

Every call blocks until its result is complete; call it on a `Lane` to train meanwhile.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    Group = Callable[[], "dist.ProcessGroup | None"]


_FOR_EVER = timedelta(days=3650)


class Transport:
    """Communicates in a process group, looked up at every call because it can be replaced."""

    def __init__(self, group: "Group", device: torch.device, workers: int, rank: int) -> None:
        self._group = group
        self.device = device
        self.workers = workers
        """Number of replicas."""
        self.rank = rank
        """Rank of this replica."""
        self.calls = 0
        """Number of collectives and swaps of this worker."""
        self.sent_bytes = 0
        """Bytes that this worker sent, without network overhead."""
        self._counting = threading.Lock()

    def average(self, values: torch.Tensor) -> torch.Tensor:
        """Average over the workers, in place."""
        if self.workers > 1:
            dist.all_reduce(values, group=self._group())
            values /= self.workers
            self._count(2 * values.nbytes * (self.workers - 1) // self.workers)
        return values

    def gather(self, message: torch.Tensor) -> list[torch.Tensor]:
        """Return the messages of all workers, in the order of their ranks."""
        if self.workers == 1:
            return [message]
        messages = [torch.empty_like(message) for _ in range(self.workers)]
        dist.all_gather(messages, message, group=self._group())
        self._count(message.nbytes * (self.workers - 1))
        return messages

    def transpose(self, messages: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send a message to each worker, all of one size; return the messages to this worker."""
        if self.workers == 1:
            return list(messages)
        received = [torch.empty_like(message) for message in messages]
        received[self.rank] = messages[self.rank]
        others = [other for other in range(self.workers) if other != self.rank]
        # Gloo's own all-to-all takes a third longer on a slow link, because its pairs take turns.
        self.swap(
            {other: messages[other] for other in others},
            {other: received[other] for other in others},
        )
        return received

    def swap(
        self,
        sent: Mapping[int, torch.Tensor],
        received: Mapping[int, torch.Tensor],
        *,
        sent_tag: int = 0,
        received_tag: int = 0,
    ) -> None:
        """Send to some workers and receive from some, by replica rank.

        Between two workers, threads may swap at the same time under different tags (Gloo).
        """
        group = self._group()
        ways = ((dist.irecv, received, received_tag), (dist.isend, sent, sent_tag))
        operations = [
            dist.P2POp(operation, tensor, group=group, tag=tag, group_peer=peer)
            for operation, messages, tag in ways
            for peer, tensor in messages.items()
        ]
        # As a batch: one by one, two workers that swap with NCCL would both block in their receive.
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        self._count(sum(tensor.nbytes for tensor in sent.values()))

    def listen(self, source: int, message: torch.Tensor, *, tag: int) -> None:
        """Receive from a worker without a timeout; fail when the worker is lost."""
        work = dist.irecv(message, group=self._group(), group_src=source, tag=tag)
        if work is not None:
            work.wait(_FOR_EVER)

    def _count(self, sent_bytes: int) -> None:
        with self._counting:
            self.calls += 1
            self.sent_bytes += sent_bytes
