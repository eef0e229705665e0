"""How long workers take to exchange bytes: collectives in groups, sends between nodes."""

from collections.abc import Callable, Iterator
from statistics import median, median_low

import torch
import torch.distributed as dist

from paceline.cluster.probe.cases import (
    FIRST_BYTES,
    Grouping,
    in_parts,
    next_bytes,
    repeats,
)
from paceline.comm.groups import Groups
from paceline.specs.measurements.cluster import Operation
from paceline.specs.measurements.probe import CollectiveTime
from paceline.train.probing.timer import once

CPU_BYTES, ACCELERATOR_BYTES = 1 << 25, 1 << 30
"""The largest message."""
PAIR_FIRST_BYTES = 1 << 18
PAIR_SECONDS = 0.1
PAIR_REPEATS = 3
REPLY_BYTES, REPLIES = 4, 15

Call = Callable[[], object]
# As FSDP2 calls them; the second names are those before torch 2.13.
_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def collective_times(groups: Groups, grouping: Grouping) -> Iterator[list[CollectiveTime]]:
    """The times of each operation in one grouping, at growing sizes; all workers together."""
    placement = groups.placement
    members = grouping.group_of(placement.rank, placement.nodes, placement.local_workers)
    with groups.among(members or [placement.rank]) as group:
        operations: list[Operation] = ["all-reduce", "all-gather", "reduce-scatter"]
        if grouping.members == 2:
            operations.append("send")
        for operation in operations:
            times = []
            for nbytes, seconds in _sizes(groups, grouping, operation, members, group):
                times.append(
                    CollectiveTime(
                        operation=operation,
                        members=grouping.members,
                        members_per_node=grouping.per_node,
                        nbytes=nbytes,
                        seconds=seconds,
                    )
                )
            yield times


def _sizes(
    groups: Groups,
    grouping: Grouping,
    operation: Operation,
    members: list[int] | None,
    group: "dist.ProcessGroup | None",
) -> Iterator[tuple[int, float]]:
    """Bytes and seconds, until a call would take too long for anybody."""
    device = groups.device
    most = CPU_BYTES if device.type == "cpu" else ACCELERATOR_BYTES
    reply = _reply_seconds(groups, members) if operation == "send" else 0.0
    nbytes: int | None = in_parts(FIRST_BYTES, grouping.members)
    first = expected = 0.0
    while nbytes is not None:
        call = None
        if members is not None:
            call = _call(operation, nbytes, members, group, device, groups.placement.rank)
            call()
        if not expected:
            first = expected = max(shared(groups, once(call, device) if call else 0.0))
        count = repeats(expected)
        own = median(once(call, device) for _ in range(count)) if call else 0.0
        every = [each for each in shared(groups, own) if each > 0]
        seconds = median_low(every)
        yield nbytes, seconds - min(reply, seconds / 2.0)
        slowest, before = max(every), nbytes
        first = min(first, slowest)
        nbytes = next_bytes(before, slowest - first, most, grouping.members)
        expected = first + (slowest - first) * (nbytes or before) / before


def pair_rate(groups: Groups, partner: int | None) -> float:
    """Bytes per second between this worker and another, there and back; 0 without a partner.

    The pair chooses its message by itself, so that a slow one does not shorten those of others.
    """
    if partner is None:
        return 0.0
    device, rank = groups.device, groups.placement.rank
    pair = sorted([rank, partner])
    first = _there_and_back(PAIR_FIRST_BYTES, PAIR_FIRST_BYTES, pair, rank, device)
    first()
    fits = PAIR_SECONDS / (once(first, device) / 2.0)
    chosen = torch.tensor([PAIR_FIRST_BYTES * max(fits, 1.0)], device=device)
    if rank == pair[0]:
        dist.send(chosen, partner)
    else:
        dist.recv(chosen, partner)
    most = CPU_BYTES if device.type == "cpu" else ACCELERATOR_BYTES
    nbytes = in_parts(min(float(chosen), most), 1)
    call = _there_and_back(nbytes, nbytes, pair, rank, device)
    return 2.0 * nbytes / median(once(call, device) for _ in range(PAIR_REPEATS))


def shared(groups: Groups, own: float) -> list[float]:
    """A number of each worker, by rank."""
    slots = torch.zeros(groups.placement.workers, dtype=torch.float32, device=groups.device)
    slots[groups.placement.rank] = own
    found: list[float] = groups.sum(slots).tolist()
    return found


def _call(
    operation: Operation,
    nbytes: int,
    members: list[int],
    group: "dist.ProcessGroup | None",
    device: torch.device,
    rank: int,
) -> Call:
    """One call, on tensors of which the whole has `nbytes`."""
    if operation == "send":
        # All in one direction: messages that return would share a link with each other only half
        # of the time, those of a pipeline's stages do all the time.
        return _there_and_back(nbytes, REPLY_BYTES, members, rank, device)
    whole = torch.zeros(nbytes // 4, device=device)
    part = torch.zeros(whole.numel() // len(members), device=device)
    if operation == "all-reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "all-gather":
        return lambda: _gather(whole, part, group=group)
    return lambda: _scatter(part, whole, group=group)


def _there_and_back(
    nbytes: int, returned: int, pair: list[int], rank: int, device: torch.device
) -> Call:
    """A message to the second of a pair and another back: then the first knows that it arrived."""
    message = torch.zeros(nbytes // 4, device=device)
    reply = torch.zeros(returned // 4, device=device)

    def call() -> None:
        if rank == pair[0]:
            dist.send(message, pair[1])
            dist.recv(reply, pair[1])
        else:
            dist.recv(message, pair[0])
            dist.send(reply, pair[0])

    return call


def _reply_seconds(groups: Groups, pair: list[int] | None) -> float:
    """What the way back of a reply adds to the time of a send."""
    own = 0.0
    if pair is not None:
        call = _there_and_back(REPLY_BYTES, REPLY_BYTES, pair, groups.placement.rank, groups.device)
        own = median(once(call, groups.device) for _ in range(REPLIES)) / 2.0
    return median_low(each for each in shared(groups, own) if each > 0)
