"""Timing of communication: collectives in groups of workers, sends between nodes."""

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
from paceline.comm.collectives import all_gather, reduce_scatter
from paceline.comm.groups import Groups
from paceline.specs.measurements.cluster import Operation
from paceline.specs.measurements.probe import CollectiveTime
from paceline.train.probing.timer import once

CPU_BYTES, ACCELERATOR_BYTES = 1 << 25, 1 << 30
"""Size of the largest message."""
PAIR_FIRST_BYTES = 1 << 18
PAIR_SECONDS = 0.1
PAIR_REPEATS = 3
REPLY_BYTES, REPLIES = 4, 15

Call = Callable[[], object]


def collective_times(groups: Groups, grouping: Grouping) -> Iterator[list[CollectiveTime]]:
    """Yield each operation's times at growing sizes in one grouping. All workers call this."""
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
    """Yield bytes and seconds, until the next size would take too long on any worker."""
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
    """Return the bytes per second to another worker and back; 0 without a partner.

    Each pair chooses its own message size, so that a slow pair does not shorten the others'.
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
    """Return each worker's number, by rank."""
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
    """Return a call of an operation on a whole tensor of `nbytes`."""
    if operation == "send":
        # Send large messages in one direction only, as pipeline stages do: those share a link all
        # the time, while round trips of large messages would share it only half of the time.
        return _there_and_back(nbytes, REPLY_BYTES, members, rank, device)
    whole = torch.zeros(nbytes // 4, device=device)
    part = torch.zeros(whole.numel() // len(members), device=device)
    if operation == "all-reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "all-gather":
        return lambda: all_gather(whole, part, group=group)
    return lambda: reduce_scatter(part, whole, group=group)


def _there_and_back(
    nbytes: int, returned: int, pair: list[int], rank: int, device: torch.device
) -> Call:
    """Return a call that sends a message to the second of a pair, and a reply to the first, so that
    the first knows that the message arrived."""
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
    """Return the time that the reply adds to a send."""
    own = 0.0
    if pair is not None:
        call = _there_and_back(REPLY_BYTES, REPLY_BYTES, pair, groups.placement.rank, groups.device)
        own = median(once(call, groups.device) for _ in range(REPLIES)) / 2.0
    return median_low(each for each in shared(groups, own) if each > 0)
