"""The transport of the collectives: Gloo, on scratch copies of the device's memory.

So only a kernel writes device memory, and a transport that is left behind writes nowhere.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BroadcastOptions,
    ProcessGroupGloo,
    Store,
)

_TIMEOUT = timedelta(days=1)
"""The transport never gives up by itself: a lost peer is a hang until the watchdog or an abort."""


@dataclass(frozen=True)
class Result:
    """A part of a collective's result."""

    to: torch.Tensor
    """Device memory, seen as a CPU tensor."""
    scratch: torch.Tensor
    """Where the transport leaves the values."""
    divisor: int = 1

    def write(self) -> None:
        """Write the values to the device's memory."""
        self.to.copy_(self.scratch / self.divisor if self.divisor > 1 else self.scratch)

    def write_partly(self) -> None:
        """Write the first half of what the transport has reached so far."""
        half = self.scratch.numel() // 2
        self.to.view(-1)[:half] = self.scratch.reshape(-1)[:half]


class Pending:
    """A transfer that Gloo has begun."""

    def __init__(self, work: "dist.Work", *, with_one_peer: bool = False) -> None:
        self.error: str | None = None
        self.ended = threading.Event()
        self._work, self._with_one_peer = work, with_one_peer

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end`, from another thread, when the transfer ends or fails."""

        def end(wait: Callable[[], object]) -> None:
            try:
                wait()
            except RuntimeError as error:
                self.error = str(error)
            self.ended.set()
            on_end()

        if self._with_one_peer:  # Gloo ends such a transfer in `wait` only
            threading.Thread(
                target=end, args=(self._work.wait,), name="simccl_peer", daemon=True
            ).start()
        else:
            self._work.get_future().add_done_callback(lambda future: end(future.wait))


@dataclass
class Transfer:
    """What the transport does for a collective."""

    pending: list[Pending] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def __add__(self, other: "Transfer") -> "Transfer":
        return Transfer(self.pending + other.pending, self.results + other.results)


class Transport:
    """Gloo's connections among the ranks of a communicator."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank, self.size = rank, size
        # torch's stubs do not say that it is a backend.
        self._gloo: Any = ProcessGroupGloo(store, rank, size, timeout)
        self._gloo._set_default_timeout(_TIMEOUT)

    def reduced(
        self,
        target: torch.Tensor | None,
        source: torch.Tensor,
        op: Any,
        part: slice = slice(None),
    ) -> Transfer:
        """Reduce a tensor over all ranks; write a part of it, in one dimension, to a target.

        `op`: a `dist.ReduceOp`, for which torch's stubs have two types that they never compare.
        """
        scratch = source.reshape(-1).clone()
        options = AllreduceOptions()
        averages, sums = op == dist.ReduceOp.AVG, op == dist.ReduceOp.SUM
        numbers = scratch
        if scratch.dtype == torch.bool:  # as in NCCL: flags are bytes, their sum is the maximum
            numbers, op = scratch.view(torch.uint8), dist.ReduceOp.MAX if sums else op
        op = dist.ReduceOp.SUM if averages else op
        options.reduceOp = op
        pending = [Pending(self._gloo.allreduce([numbers], options))]
        if target is None:
            return Transfer(pending)
        own = scratch[part].view(target.shape)
        return Transfer(pending, [Result(target, own, self.size if averages else 1)])

    def broadcast(self, host: torch.Tensor, root: int) -> Transfer:
        """Copy the root's tensor to all ranks."""
        options = BroadcastOptions()
        options.rootRank = root
        scratch = host.clone()
        return Transfer(
            [Pending(self._gloo.broadcast([scratch], options))], [Result(host, scratch)]
        )

    def gathered(self, targets: list[torch.Tensor], source: torch.Tensor) -> Transfer:
        """Gather a tensor from all ranks."""
        scratch = [each.clone() for each in targets]
        work = self._gloo.allgather([scratch], [source.clone()], AllgatherOptions())
        pairs = zip(targets, scratch, strict=True)
        return Transfer([Pending(work)], [Result(*pair) for pair in pairs])

    def exchanged(
        self, sent: dict[int, torch.Tensor], received: dict[int, torch.Tensor]
    ) -> Transfer:
        """Send tensors to ranks, and receive others from ranks; messages arrive in order."""
        transfer = Transfer()
        for peer, source in sent.items():
            if peer != self.rank:
                work = self._gloo.send([source.clone()], peer, 0)
                transfer.pending.append(Pending(work, with_one_peer=True))
        for peer, target in received.items():
            if peer == self.rank:
                scratch = sent[peer].clone()
            else:
                scratch = torch.empty_like(target)
                work = self._gloo.recv([scratch], peer, 0)
                transfer.pending.append(Pending(work, with_one_peer=True))
            transfer.results.append(Result(target, scratch))
        return transfer
