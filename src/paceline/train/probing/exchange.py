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
from paceline.specs.cluster import Operation
from paceline.specs.probe import CollectiveTime
from paceline.train.groups import Groups
from paceline.train.probing.clock import once

CPU_BYTES, ACCELERATOR_BYTES = 1 << 26, 1 << 30
"""The largest message."""
PAIR_FIRST_BYTES = 1 << 18
PAIR_SECONDS = 0.1
PAIR_REPEATS = 3

Call = Callable[[], object]
# As FSDP2 calls them; the second names are those before torch 2.13.
_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def collective_times(groups: Groups, grouping: Grouping) -> Iterator[list[CollectiveTime]]:
    """The times of each operation in one grouping, at growing sizes; all workers together."""
    place = groups.place
    members = grouping.group_of(place.rank, place.nodes, place.local_workers)
    with groups.among(members) as group:
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
    back = 2.0 if operation == "send" else 1.0
    nbytes: int | None = in_parts(FIRST_BYTES, grouping.members)
    first = expected = 0.0
    while nbytes is not None:
        call = None
        if members is not None:
            call = _call(operation, nbytes, members, group, device, groups.place.rank)
            call()
        if not expected:
            first = expected = max(shared(groups, once(call, device) if call else 0.0))
        count = repeats(expected)
        own = median(once(call, device) for _ in range(count)) if call else 0.0
        every = [each for each in shared(groups, own) if each > 0]
        yield nbytes, median_low(every) / back
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
    device, rank = groups.device, groups.place.rank
    leads = rank < partner
    first = _there_and_back(PAIR_FIRST_BYTES, partner, device, leads)
    first()
    fits = PAIR_SECONDS / (once(first, device) / 2.0)
    chosen = torch.tensor([PAIR_FIRST_BYTES * max(fits, 1.0)], device=device)
    if leads:
        dist.send(chosen, partner)
    else:
        dist.recv(chosen, partner)
    most = CPU_BYTES if device.type == "cpu" else ACCELERATOR_BYTES
    nbytes = in_parts(min(float(chosen), most), 1)
    call = _there_and_back(nbytes, partner, device, leads)
    return 2.0 * nbytes / median(once(call, device) for _ in range(PAIR_REPEATS))


def shared(groups: Groups, own: float) -> list[float]:
    """A number of each worker, by rank."""
    slots = torch.zeros(groups.place.workers, dtype=torch.float32, device=groups.device)
    slots[groups.place.rank] = own
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
        partner = members[0] if members[1] == rank else members[1]
        return _there_and_back(nbytes, partner, device, leads=rank < partner)
    whole = torch.zeros(nbytes // 4, device=device)
    part = torch.zeros(whole.numel() // len(members), device=device)
    if operation == "all-reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "all-gather":
        return lambda: _gather(whole, part, group=group)
    return lambda: _scatter(part, whole, group=group)


def _there_and_back(nbytes: int, partner: int, device: torch.device, leads: bool) -> Call:
    """A message that returns: only then does the sender know that all of it has arrived."""
    message = torch.zeros(nbytes // 4, device=device)

    def call() -> None:
        if leads:
            dist.send(message, partner)
            dist.recv(message, partner)
        else:
            dist.recv(message, partner)
            dist.send(message, partner)

    return call
