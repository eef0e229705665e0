"""A model, or a stage of one, spread over the workers that divide the batch: copied or sharded."""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.profile.blocks import blocks
from paceline.specs import Layout
from paceline.train.groups import Groups


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
    )
    # Equal to begin with, and then left alone, as under shards: batch normalisation has its own
    # way (batch_norm.py), and a broadcast before every forward would hold up all workers.
    copies.broadcast_buffers = False
    return copies


def sharded(model: nn.Module, layout: Layout, groups: Groups, *, join: bool) -> nn.Module:
    """Weights, gradients and optimizer state divided, by FSDP2, block by block; in place.

    With `join`, replicas of the shards average their gradients, too.
    """
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 -- slow to load, seldom needed

    mesh = groups.mesh(layout)
    mesh = mesh["replicas", "shards"] if layout.replicas > 1 and join else mesh["shards"]
    for block in blocks(model):
        if next(block.parameters(), None) is not None:
            fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard)
    # What is left for the root is needed first in backward: freeing it would gather it twice.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


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
