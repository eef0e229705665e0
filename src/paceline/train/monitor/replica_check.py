"""Comparison of replicas that should be equal, and repair of the ones that differ.

Averaged gradients and equal updates keep replicas bitwise equal, so a difference is corruption: a
bit flip in memory or a processor that computes wrong. Each worker sums the bits of its weights and
optimizer state as integers, and the workers compare 8-byte digests. A single changed value always
shows; several would have to cancel out in 64 bits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.parallel.parallel_model import ParallelModel
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, PacelineError, SyncSettings

_MIXER = 0x1E3779B97F4A7C15
"""Multiplier that makes the digest depend on the order; odd, so that it loses no bits."""
_WORD_BYTES = 8
_STRETCH_BYTES = 1 << 20
"""Concatenate smaller tensors before summing: one call per tensor would take most of the time."""


class ReplicasDisagree(PacelineError):
    """Replicas hold different weights or optimizer state, and none has a majority."""

    def __init__(self, step: int, ranks: Sequence[int]) -> None:
        workers = ", ".join(map(str, ranks))
        super().__init__(
            f"after step {step} the weights or the optimizer's state of workers {workers} differ,"
            " and no majority of replicas agrees",
            fix="continue from the last checkpoint with `paceline resume`, and test the memory of"
            " their nodes; with 3 replicas or more, a majority repairs the others",
        )
        self.step, self.ranks = step, list(ranks)


def check_comparable(check_every: int, sync: SyncSettings) -> None:
    """Raise if replicas differ by design, so that a comparison makes no sense."""
    if check_every and sync.replicas_differ:
        raise PacelineError(
            f"check_every={check_every} was given together with mode={sync.mode}, in which the"
            " weights of replicas differ by design",
            fix="use --sync allreduce, or leave check_every out",
        )


class Replicas:
    """This worker and the workers that hold the same part of other replicas."""

    def __init__(self, layout: Layout, groups: Groups, clock: Clock) -> None:
        self._layout, self._groups, self._clock = layout, groups, clock

    def repaired(self, step: int, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Compare tensors after a step, and repair and return the ranks outside the majority.

        All replicas call this together. Raise if there is no majority.
        """
        group = self._groups.same_part(self._layout)
        if group is None:
            return []
        ranks = dist.get_process_group_ranks(group)
        digests = self._digests(tensors, group)
        odd = odd_ones_out(digests)
        if odd == []:
            return []
        if odd is not None:
            right = next(placement for placement in range(len(ranks)) if placement not in odd)
            repair(tensors, right, group, self._groups.device)
            if odd_ones_out(self._digests(tensors, group)) == []:
                return [ranks[placement] for placement in odd]
        raise ReplicasDisagree(step, ranks)

    def tells(self, corrupt: Sequence[int]) -> bool:
        """Return whether this worker reports the corruption: the majority's lowest rank."""
        group = self._groups.same_part(self._layout)
        assert group is not None
        right = (rank for rank in dist.get_process_group_ranks(group) if rank not in corrupt)
        return next(right) == self._groups.placement.rank

    def _digests(self, tensors: Sequence[torch.Tensor], group: "dist.ProcessGroup") -> list[int]:
        device = self._groups.device
        digests = torch.zeros(group.size(), dtype=torch.int64, device=device)
        digests[group.rank()] = digest(tensors, device)
        with self._clock.during("communication"):
            dist.all_reduce(digests, group=group)
            every: list[int] = digests.tolist()
        return every


def common_tensors(
    parallel_model: ParallelModel, optimizers: Sequence[torch.optim.Optimizer]
) -> list[torch.Tensor]:
    """Return the tensors that are equal on all replicas: weights and their optimizer state.

    Buffers are not among them: running statistics differ between workers until they are used.
    """
    tensors: list[torch.Tensor] = []
    for parameter in parallel_model.parameters():
        states = [optimizer.state.get(parameter, {}) for optimizer in optimizers]
        values = [parameter, *(kept[key] for kept in states for key in sorted(kept))]
        tensors += [
            local_tensor(each).detach() for each in values if isinstance(each, torch.Tensor)
        ]
    return tensors


def digest(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return an 8-byte digest that changes if any single value in these tensors changes."""
    sums = [
        part.to(device, non_blocking=True)
        for stretch in _stretches(tensors)
        for part in _sums_of_bits(stretch)
    ]
    numbers = torch.arange(1, 2 * len(sums), 2, device=device)
    return (torch.stack(sums) * (numbers * _MIXER)).sum()


def odd_ones_out(digests: Sequence[int]) -> list[int] | None:
    """Return the indices whose digest differs from the majority's; None without a majority."""
    (right, count), *_ = Counter(digests).most_common()
    if 2 * count <= len(digests):
        return None
    return [placement for placement, each in enumerate(digests) if each != right]


def repair(
    tensors: Sequence[torch.Tensor],
    source: int,
    group: "dist.ProcessGroup",
    device: torch.device,
) -> None:
    """Broadcast tensors from group rank `source`. All workers of the group call this."""
    for tensor in tensors:
        # Some optimizers count steps in a CPU tensor, which an accelerator's group cannot send.
        passed = tensor.to(device).contiguous()
        dist.broadcast(passed, group=group, group_src=source)
        if passed is not tensor:
            tensor.copy_(passed)


def _stretches(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the tensors as bytes, with small tensors concatenated."""
    small: dict[torch.device, list[torch.Tensor]] = defaultdict(list)
    sizes: Counter[torch.device] = Counter()
    for tensor in tensors:
        data, device = tensor.reshape(-1).view(torch.uint8), tensor.device
        if data.nbytes >= _STRETCH_BYTES:
            yield data
            continue
        small[device].append(data)
        sizes[device] += data.nbytes
        if sizes[device] >= _STRETCH_BYTES:
            del sizes[device]
            yield torch.cat(small.pop(device))
    yield from map(torch.cat, small.values())


def _sums_of_bits(data: torch.Tensor) -> list[torch.Tensor]:
    """Return the sum of the 8-byte words and the sum of the remaining bytes."""
    whole = len(data) // _WORD_BYTES * _WORD_BYTES
    words = data[:whole]
    if words.storage_offset() % _WORD_BYTES:
        words = words.clone()
    return [words.view(torch.int64).sum(), data[whole:].sum()]
