"""A model, or a stage of one, spread over the workers that divide the batch: copied or sharded."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.comm.groups import Groups
from paceline.parallel.step.step_clock import Clock
from paceline.profile.regions import blocks
from paceline.specs import Layout

# Names since torch 2.13, which warns of the ones before.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def replicated(model: nn.Module, layout: Layout, groups: Groups) -> DistributedDataParallel:
    """Copies that average their gradients while backward goes on."""
    alone = layout.replicas == layout.workers
    # Only with torch's own size does the exchange begin early, with a first bucket of 1 MiB.
    megabytes = layout.bucket_megabytes
    usual = megabytes == Layout().bucket_megabytes
    copies = DistributedDataParallel(
        model,
        device_ids=None if groups.device.type == "cpu" else [groups.device.index],
        process_group=None if alone else groups.mesh(layout).get_group("replicas"),
        bucket_cap_mb=None if usual else megabytes,
        # Those who regroup have the same weights, or get them in another way.
        init_sync=groups.placement.roster is None,
    )
    # Equal to begin with, and then left alone, as under shards: batch normalisation has its own
    # way (batch_norm.py), and a broadcast before every forward would hold up all workers.
    copies.broadcast_buffers = False
    return copies


def sharded(
    model: nn.Module, layout: Layout, groups: Groups, clock: Clock, *, join: bool
) -> nn.Module:
    """Weights, gradients and optimizer state divided, by FSDP2, block by block; in place.

    With `join`, replicas of the shards average their gradients, too. The clock is told when a
    worker on a CPU waits for weights or gradients; an accelerator waits in its own queue.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: PLC0415 -- slow to load, seldom needed

    mesh = groups.mesh(layout)
    mesh = mesh["replicas", "shards"] if layout.replicas > 1 and join else mesh["shards"]
    for block in blocks(model):
        if next(block.parameters(), None) is not None:
            fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard)
    # What is left for the root is needed first in backward: freeing it would gather it twice.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    if groups.device.type == "cpu":
        scattering = _Scattering(clock, ExitStack() if mesh.ndim > 1 else None)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(_Gathering(clock))  # type: ignore[arg-type]
                module.set_custom_reduce_scatter(scattering)  # type: ignore[arg-type]
                if mesh.ndim > 1:
                    module.set_all_reduce_hook(scattering.summed)
    return model


@dataclass(frozen=True)
class _Exchanging:
    """FSDP2's own exchanges, whose time is known; the form is that of its custom ones."""

    clock: Clock

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Where what is exchanged goes to."""
        return torch.empty(*size, dtype=dtype, device=device)


class _Gathering(_Exchanging):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> "dist.Work | None":
        with self.clock.during("communication"):
            work: dist.Work | None = _all_gather(output_tensor, input_tensor, group, async_op)
        return work


@dataclass(frozen=True)
class _Scattering(_Exchanging):
    until_summed: ExitStack | None
    """With replicas: holds what ends when FSDP2 has summed over them, right behind this."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> "dist.Work | None":
        with self.clock.during("communication"):
            work: dist.Work | None = _reduce_scatter(
                output_tensor, input_tensor, op, group, async_op
            )
        if self.until_summed is not None:
            self.until_summed.enter_context(self.clock.during("communication"))
        return work

    def summed(self, gradients: torch.Tensor) -> None:
        """FSDP2 calls this when the replicas' gradients are summed."""
        del gradients
        if self.until_summed is not None:
            self.until_summed.close()


def synchronising(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    """A block whose backward exchanges gradients only if it is the step's last."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if hasattr(module, "set_requires_gradient_sync"):
        module.set_requires_gradient_sync(last)  # type: ignore[operator]
    return nullcontext()


def average(gradients: list[torch.Tensor], group: dist.ProcessGroup, bucket_bytes: int) -> None:
    """Average gradients over a group, in place, several at a time."""
    begin = 0
    while begin < len(gradients):
        end, size = begin, 0
        while end < len(gradients) and (end == begin or size < bucket_bytes):
            size += gradients[end].nbytes
            end += 1
        bucket = gradients[begin:end]
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat, group=group)
        flat /= dist.get_world_size(group)
        sizes = [gradient.numel() for gradient in bucket]
        for gradient, part in zip(bucket, torch.split(flat, sizes), strict=True):
            gradient.copy_(part.view_as(gradient))
        begin = end
