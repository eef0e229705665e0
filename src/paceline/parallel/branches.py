"""Parameters that a step may leave unused: experts, heads of one task, layers that are dropped.

In one process, such a parameter has no gradient, and its optimizer leaves it alone. So on several
workers: a gradient that only some have counts as zero on the others, and one that no worker has is
none. Replicas have this from DDP. For shards, every worker must reduce the same gradients.
"""

from collections.abc import Collection

import torch
import torch.distributed as dist
from torch import nn

from paceline.comm.torch_internals import note_gradients_of_shards
from paceline.profile.regions import rows_of_blocks
from paceline.specs import PacelineError


def blocks_outside_branches(model: nn.Module, branches: Collection[str]) -> list[nn.Module]:
    """Return the blocks that every worker calls in every step.

    `branches` names parameters that a step may leave unused. A block of nothing else is itself a
    branch, and so may be the others of its row: workers that call it would wait for those that
    do not.
    """
    unused = {id(each) for name, each in model.named_parameters() if name in branches}

    def is_branch(block: nn.Module) -> bool:
        trained = [each for each in block.parameters() if each.requires_grad]
        return bool(trained) and all(id(each) in unused for each in trained)

    rows = rows_of_blocks(model)
    return [block for row in rows if not any(map(is_branch, row)) for block in row]


class ShardedBranches:
    """Gradients of sharded parameters that only some workers use in a step, or none."""

    def __init__(self, model: nn.Module, group: dist.ProcessGroup, device: torch.device) -> None:
        reduce_unused = getattr(model, "set_reduce_scatter_unused_params", None)
        if reduce_unused is None:
            raise PacelineError(
                f"some samples leave parameters of {type(model).__name__} unused, which this"
                " version of torch cannot shard",
                fix="install torch 2.13 or newer, or use --replicas",
            )
        reduce_unused(True)
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._group, self._device = group, device
        self._used = used = set[int]()
        # The model outlives the group: it must not refer to this object.
        note_gradients_of_shards(model, lambda parameter: used.add(id(parameter)))

    def settle(self) -> None:
        """Drop the gradients that no worker has computed. All workers call this after backward."""
        used = [float(id(each) in self._used) for each in self._parameters]
        self._used.clear()
        counts = torch.tensor(used, device=self._device)
        dist.all_reduce(counts, group=self._group)
        for parameter, count in zip(self._parameters, counts.tolist(), strict=True):
            if not count:
                parameter.grad = None
