"""Replicas that should hold the same compare what they hold, and the odd one out is repaired.

Averaged gradients and equal updates keep replicas equal to the bit. What differs was changed by
something else: a bit that flipped in memory, a processor that computes wrong. Each worker sums the
bits of its weights and of its optimizer's state as whole numbers, and eight bytes of each are
compared. One changed number always shows; several would have to cancel each other in 64 bits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.parallel.arranged import Arranged
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, PacelineError, SyncSettings

_MIXER = 0x1E3779B97F4A7C15
"""Odd, so that no multiple of it loses what a sum says; of the sums' numbers in the row."""
_WORD_BYTES = 8
_STRETCH_BYTES = 1 << 20
"""Smaller tensors are added up together: calls for each of them would take most of the time."""


class ReplicasDisagree(PacelineError):
    """Replicas hold different weights, and no majority says which of them are right."""

    def __init__(self, step: int, ranks: Sequence[int]) -> None:
        workers = ", ".join(map(str, ranks))
        super().__init__(
            f"after step {step} the weights or the optimizer's state of workers {workers} differ,"
            " and no majority of them says which are right",
            fix="`paceline resume` goes on from the last checkpoint; have the memory of their nodes"
            " tested, and use at least 3 replicas, of which two repair the third",
        )
        self.step, self.ranks = step, list(ranks)


def check_comparable(check_every: int, sync: SyncSettings) -> None:
    """Refuse to compare replicas that differ by design."""
    if check_every and sync.replicas_differ:
        raise PacelineError(
            f"check_every={check_every} was given together with mode={sync.mode}, in which replicas"
            " have weights of their own, so that there is nothing to compare",
            fix="use --sync allreduce, or leave check_every out",
        )


class Replicas:
    """This worker and those that hold the same part of other copies of the model."""

    def __init__(self, layout: Layout, groups: Groups, clock: Clock) -> None:
        self._layout, self._groups, self._clock = layout, groups, clock

    def repaired(self, step: int, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Compare these tensors after a step; who held something else than the majority, and now
        holds the same.

        All replicas call this together. Raises where there is no majority.
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
        """Whether this worker is the one of the majority that says so."""
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


def common_tensors(arranged: Arranged, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What replicas hold alike: the weights, and what the optimizer keeps of each.

    No buffers: running statistics are a worker's own until they are used.
    """
    tensors: list[torch.Tensor] = []
    for parameter in arranged.parameters():
        kept = optimizer.state.get(parameter, {})
        values = [parameter, *(kept[key] for key in sorted(kept))]
        tensors += [
            local_tensor(each).detach() for each in values if isinstance(each, torch.Tensor)
        ]
    return tensors


def digest(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Eight bytes that are others if one number in one of these tensors is another."""
    sums = [
        part.to(device, non_blocking=True)
        for stretch in _stretches(tensors)
        for part in _sums_of_bits(stretch)
    ]
    numbers = torch.arange(1, 2 * len(sums), 2, device=device)
    return (torch.stack(sums) * (numbers * _MIXER)).sum()


def odd_ones_out(digests: Sequence[int]) -> list[int] | None:
    """The places that do not say what the majority says; None where there is no majority."""
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
    """Give all workers of a group the tensors of the one at a place in it, which all call."""
    for tensor in tensors:
        # Some optimizers count steps on the host, where an accelerator's group does not reach.
        passed = tensor.to(device).contiguous()
        dist.broadcast(passed, group=group, group_src=source)
        if passed is not tensor:
            tensor.copy_(passed)


def _stretches(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The bytes of these tensors; those of small ones behind each other."""
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
    """Bytes in words of eight, added up, and those of what is left."""
    whole = len(data) // _WORD_BYTES * _WORD_BYTES
    words = data[:whole]
    if words.storage_offset() % _WORD_BYTES:
        words = words.clone()
    return [words.view(torch.int64).sum(), data[whole:].sum()]
