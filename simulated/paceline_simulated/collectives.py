"""The collectives of the simulated device: `init_process_group("simccl")`, with NCCL's manners.

A collective is queued on a communication stream and returns at once; `wait` orders streams, not the
host. A lost peer is a hang, until the watchdog ends the process or another thread aborts the
communicator: then the kernel ends, raises nothing and leaves partial sums.

Not modeled: communicators of two ranks for a send outside `batch_isend_irecv` (its group's is
used), premultiplied sums, sparse tensors, and that ranks outside a split wait for it.
"""

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from paceline_simulated import core
from paceline_simulated.collectives_communicator import Communicator
from paceline_simulated.collectives_kernel import Begin
from paceline_simulated.collectives_transport import Transfer, Transport
from paceline_simulated.collectives_watchdog import Watchdog

Tensors = list[torch.Tensor]
BeginOnHost = Callable[[Transport, Tensors], Transfer]
"""Begins a collective with its tensors, seen as CPU tensors over the device's memory."""


class Collectives:
    """One rank's collectives in one group."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank, self.size = rank, size
        self._communicator = Communicator(store, rank, size, timeout)
        Watchdog(self._communicator)
        self._coalesced: list[tuple[Tensors, Begin, Tensors]] | None = None

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long a collective may take."""
        self._communicator.timeout = timeout

    def connect(self) -> None:
        """Connect before the first collective, as `init_process_group(device_id=…)` asks."""
        self._communicator.connect()

    def split(self, store: Store, ranks: list[int], timeout: timedelta) -> "Collectives | None":
        """Return the connected collectives of some ranks; None on the others."""
        if self.rank not in ranks:
            return None
        child = Collectives(store, ranks.index(self.rank), len(ranks), timeout)
        child.connect()
        return child

    def no_color_split(self) -> None:
        """Take part in a split as a rank outside the new group."""

    def abort(self) -> None:
        """Abort this communicator, but none that was split from it."""
        self._communicator.abort()

    def shutdown(self) -> None:
        """Wait for queued collectives, and disconnect."""
        self._communicator.shutdown()

    def start_coalescing(self) -> None:
        """Collect the following operations."""
        self._coalesced = []

    def end_coalescing(self) -> "dist.Work":
        """Queue the collected operations as one kernel, as `ncclGroupEnd` does."""
        assert self._coalesced
        collected, self._coalesced = self._coalesced, None

        def begin(transport: Transport) -> Transfer:
            return sum((each(transport) for _, each, _ in collected), Transfer())

        return self._communicator.queue(
            "coalesced",
            [each for tensors, _, _ in collected for each in tensors],
            begin,
            [each for _, _, outputs in collected for each in outputs],
        )

    def all_reduce(self, tensors: Tensors, op: "dist.ReduceOp") -> "dist.Work":
        """Reduce tensors over all ranks, in place."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return sum((transport.reduced(host, host, op) for host in hosts), Transfer())

        return self._queue("all_reduce", tensors, tensors, begin)

    def broadcast(self, tensor: torch.Tensor, root: int) -> "dist.Work":
        """Copy the root's tensor to all ranks."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.broadcast(hosts[0], root)

        return self._queue("broadcast", [tensor], [tensor], begin)

    def reduce(self, tensor: torch.Tensor, root: int, op: "dist.ReduceOp") -> "dist.Work":
        """Reduce a tensor to the root; it stays as it is on the other ranks."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.reduced(hosts[0] if self.rank == root else None, hosts[0], op)

        return self._queue("reduce", [tensor], [tensor], begin)

    def all_gather(self, outputs: list[Tensors], inputs: Tensors) -> "dist.Work":
        """Gather inputs from all ranks: `outputs[input][rank]`."""
        count = len(inputs)

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            sources, targets = hosts[:count], hosts[count:]
            return sum(
                (
                    transport.gathered(targets[first : first + self.size], source)
                    for first, source in zip(
                        range(0, len(targets), self.size), sources, strict=True
                    )
                ),
                Transfer(),
            )

        flat = [each for one in outputs for each in one]
        return self._queue("all_gather", [*inputs, *flat], flat, begin)

    def all_gather_coalesced(self, outputs: list[Tensors], inputs: Tensors) -> "dist.Work":
        """Gather inputs from all ranks: `outputs[rank][input]`."""
        return self.all_gather([list(each) for each in zip(*outputs, strict=True)], inputs)

    def all_gather_single(self, outputs: Tensors, inputs: Tensors) -> "dist.Work":
        """Gather each input from all ranks, into one tensor."""
        parts = [list(each.view(self.size, -1).unbind()) for each in outputs]
        return self.all_gather(parts, [each.view(-1) for each in inputs])

    def reduce_scatter(
        self, outputs: Tensors, inputs: list[Tensors], op: "dist.ReduceOp"
    ) -> "dist.Work":
        """Reduce a list of tensors over all ranks; each rank keeps one."""
        ends = [sum(each.numel() for each in inputs[0][:number]) for number in range(self.size + 1)]
        own = slice(ends[self.rank], ends[self.rank + 1])

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            whole = torch.cat([each.reshape(-1) for each in hosts[1:]])
            return transport.reduced(hosts[0], whole, op, own)

        return self._queue("reduce_scatter", [*outputs, *inputs[0]], outputs, begin)

    def reduce_scatter_single(
        self, outputs: Tensors, inputs: Tensors, op: "dist.ReduceOp"
    ) -> "dist.Work":
        """Reduce each input over all ranks; each rank keeps its part."""
        half = len(outputs)

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            transfer = Transfer()
            for target, source in zip(hosts[:half], hosts[half:], strict=True):
                first = self.rank * target.numel()
                own = slice(first, first + target.numel())
                transfer += transport.reduced(target, source, op, own)
            return transfer

        return self._queue("reduce_scatter_single", [*outputs, *inputs], outputs, begin)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input_: torch.Tensor,
        received_rows: list[int],
        sent_rows: list[int],
    ) -> "dist.Work":
        """Send rows of a tensor to each rank; without numbers of rows, equally many."""
        return self.all_to_all(
            list(torch.split(output, received_rows or len(output) // self.size)),
            list(torch.split(input_, sent_rows or len(input_) // self.size)),
        )

    def all_to_all(self, outputs: Tensors, inputs: Tensors) -> "dist.Work":
        """Send a tensor to each rank."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            received, sent = hosts[: self.size], hosts[self.size :]
            return transport.exchanged(dict(enumerate(sent)), dict(enumerate(received)))

        return self._queue("all_to_all", [*outputs, *inputs], outputs, begin)

    def gather(self, outputs: list[Tensors], inputs: Tensors, root: int) -> "dist.Work":
        """Gather a tensor from all ranks, on the root."""
        targets = outputs[0] if self.rank == root else []

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.exchanged({root: hosts[0]}, dict(enumerate(hosts[1:])))

        return self._queue("gather", [*inputs, *targets], targets, begin)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], root: int) -> "dist.Work":
        """Send one of the root's tensors to each rank."""
        sources = inputs[0] if self.rank == root else []

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.exchanged(dict(enumerate(hosts[1:])), {root: hosts[0]})

        return self._queue("scatter", [*outputs, *sources], outputs, begin)

    def send(self, tensors: Tensors, to: int) -> "dist.Work":
        """Send a tensor to a rank. As in NCCL, tags count for nothing: messages stay in order."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.exchanged({to: hosts[0]}, {})

        return self._queue("send", tensors, [], begin)

    def recv(self, tensors: Tensors, from_: int) -> "dist.Work":
        """Receive a tensor from a rank."""

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.exchanged({}, {from_: hosts[0]})

        return self._queue("recv", tensors, tensors, begin)

    def barrier(self, device: torch.device | None) -> "dist.Work":
        """Wait for all ranks. Only this collective's `wait` makes the host wait."""
        token = torch.zeros(1, device=device or "sim")

        def begin(transport: Transport, hosts: Tensors) -> Transfer:
            return transport.reduced(None, hosts[0], dist.ReduceOp.SUM)

        return self._queue("barrier", [token], [token], begin, blocks_host=True)

    def _queue(
        self,
        name: str,
        tensors: Tensors,
        outputs: Tensors,
        begin: BeginOnHost,
        *,
        blocks_host: bool = False,
    ) -> "dist.Work":
        if not all(each.is_contiguous() for each in tensors):
            raise ValueError(f"simccl: the tensors of {name} must be contiguous")
        hosts = [core.alias(each) for each in tensors]

        def begin_on_hosts(transport: Transport) -> Transfer:
            return begin(transport, hosts)

        if self._coalesced is None:
            return self._communicator.queue(
                name, tensors, begin_on_hosts, outputs, blocks_host=blocks_host
            )
        self._coalesced.append((tensors, begin_on_hosts, outputs))
        # Torch ignores the work of a single operation, and waits for that of `end_coalescing`.
        return core.queued_work(tensors[0].device, outputs, [])


def _create(store: Store, rank: int, size: int, timeout: timedelta) -> "dist.Backend":
    return core.collective_backend(rank, size, timeout, Collectives(store, rank, size, timeout))


dist.Backend.register_backend("simccl", _create, devices=["sim"])
