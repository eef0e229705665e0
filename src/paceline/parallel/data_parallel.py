"""Data parallelism for a model or a pipeline stage: replicas by DDP, shards by FSDP2."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.comm.collectives import all_gather, reduce_scatter
from paceline.comm.dtensor import is_sharded
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import sharded_together
from paceline.parallel.branches import blocks_outside_branches
from paceline.parallel.forward_trace import is_layer
from paceline.parallel.parallel_model import DTYPES
from paceline.parallel.step.part_norms import Columns, ScatteredNorms
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, PacelineError
from paceline.specs.units import first_few


def replicated(
    model: nn.Module, layout: Layout, groups: Groups, *, find_unused: bool = False
) -> DistributedDataParallel:
    """Wrap a model in DDP, which averages gradients during backward.

    With `find_unused`, DDP looks in every forward for parameters that the loss does not use.
    """
    alone = layout.replicas == layout.workers
    # Only with torch's default bucket size does DDP start early, with a first bucket of 1 MiB.
    megabytes = layout.bucket_megabytes
    usual = megabytes == Layout().bucket_megabytes
    copies = DistributedDataParallel(
        model,
        device_ids=None if groups.device.type == "cpu" else [groups.device.index],
        process_group=None if alone else groups.mesh(layout).get_group("replicas"),
        bucket_cap_mb=None if usual else megabytes,
        # After a regroup, workers have equal weights already or restore them in another way.
        init_sync=groups.placement.roster is None,
        find_unused_parameters=find_unused,
    )
    # Buffers start equal and are not broadcast, as with shards: batch normalization handles its own
    # (batch_norm.py), and a broadcast before every forward would delay all workers.
    copies.broadcast_buffers = False
    return copies


def sharded(
    model: nn.Module,
    layout: Layout,
    groups: Groups,
    clock: Clock,
    *,
    join: bool,
    accumulates: bool,
    norms: ScatteredNorms,
    branches: Collection[str] = (),
) -> nn.Module:
    """Shard weights, gradients and optimizer state block by block with FSDP2, in place.

    Weights are gathered in the layout's precision, and gradients reduced in it; not if a worker
    `accumulates` those of several micro-batches first, which FSDP2 does in the precision that it
    reduces them in. Layers of vectors, such as normalizations, stay in fp32, as under autocast.

    With `join`, replicas of the shards also average their gradients. Blocks that
    are `branches`, of parameters that a step may leave unused, are sharded with their parent. The
    clock measures how long a worker on a CPU waits for weights or gradients; an accelerator waits
    in its own queue. `norms` sees this worker's gradients before they are reduced.
    """
    # Slow to load, and seldom needed.
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    if scalars := [name for name, each in model.named_parameters() if each.ndim == 0]:
        raise PacelineError(
            f"{first_few(scalars)}: a parameter without dimensions cannot be sharded",
            fix="give it the shape (1,), such as nn.Parameter(torch.ones(1)), or use replicas",
        )
    mesh = groups.mesh(layout)
    mesh = mesh["replicas", "shards"] if layout.replicas > 1 and join else mesh["shards"]
    lower = DTYPES.get(layout.precision)
    reduced = torch.float32 if accumulates else lower
    policy = MixedPrecisionPolicy(lower, lower and reduced, cast_forward_inputs=False)
    for block in blocks_outside_branches(model, branches):
        if lower and (vectors := _vector_layers(block)):
            fully_shard(vectors, mesh=mesh, reshard_after_forward=layout.reshard)
        if not all(isinstance(each, DTensor) for each in block.parameters()):
            fully_shard(block, mesh=mesh, reshard_after_forward=layout.reshard, mp_policy=policy)
    if lower and not branches and (vectors := _vector_layers(model)):
        fully_shard(vectors, mesh=mesh, reshard_after_forward=False)
    # Stages expect the types that the trace has seen, and vectors of branches stay in fp32.
    of_root = MixedPrecisionPolicy() if branches or layout.pipeline > 1 else policy
    # Backward needs the root's parameters first: freeing them would gather them twice.
    fully_shard(model, mesh=mesh, reshard_after_forward=False, mp_policy=of_root)
    if lower:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.register_forward_hook(_in_fp32)
    waits_here = groups.device.type == "cpu"
    until_summed = ExitStack() if waits_here and mesh.ndim > 1 else None
    for module in model.modules():
        if isinstance(module, FSDPModule):
            columns = norms.columns(sharded_together(module), layout.shards)
            scattering = _Scattering(clock if waits_here else Clock(), until_summed, norms, columns)
            module.set_custom_reduce_scatter(scattering)  # type: ignore[arg-type]
            if waits_here:
                module.set_custom_all_gather(_Gathering(clock))  # type: ignore[arg-type]
                if mesh.ndim > 1:
                    module.set_all_reduce_hook(scattering.summed)
    return model


def _in_fp32(embedding: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    """Return what an embedding gives under autocast, which leaves its table in fp32."""
    del embedding, args
    return output.float()


def _vector_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers inside a model whose parameters are vectors and not sharded yet."""
    return [
        layer
        for layer in model.modules()
        if layer is not model
        and is_layer(layer)
        and all(each.ndim == 1 and not is_sharded(each) for each in layer.parameters())
    ]


def reshard(model: nn.Module) -> None:
    """Free the weights that FSDP2 keeps gathered after a forward without a backward."""
    from torch.distributed.fsdp import FSDPModule  # noqa: PLC0415 -- as above

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@dataclass(frozen=True)
class _TimedCollective:
    """Base of the timed collectives, in the form of FSDP2's custom collectives."""

    clock: Clock

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocate the output buffer of a collective."""
        return torch.empty(*size, dtype=dtype, device=device)


class _Gathering(_TimedCollective):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> "dist.Work | None":
        with self.clock.during("communication"):
            work: dist.Work | None = all_gather(output_tensor, input_tensor, group, async_op)
        return work


@dataclass(frozen=True)
class _Scattering(_TimedCollective):
    until_summed: ExitStack | None
    """With replicas: a timer that stops once FSDP2 has all-reduced over them, right afterwards."""
    norms: ScatteredNorms
    columns: Columns

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> "dist.Work | None":
        self.norms.see(input_tensor, group.size(), self.columns)
        with self.clock.during("communication"):
            work: dist.Work | None = reduce_scatter(
                output_tensor, input_tensor, op, group, async_op
            )
        if self.until_summed is not None:
            self.until_summed.enter_context(self.clock.during("communication"))
        return work

    def summed(self, gradients: torch.Tensor) -> None:
        """Stop the timer; FSDP2 calls this once the replicas' gradients are summed."""
        del gradients
        if self.until_summed is not None:
            self.until_summed.close()


def synchronizing(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Synchronize gradients in the block's backward only if it is the last of the step."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if hasattr(module, "set_requires_gradient_sync"):
        module.set_requires_gradient_sync(last)  # type: ignore[operator]
    return nullcontext()


def average(gradients: list[torch.Tensor], group: dist.ProcessGroup, bucket_bytes: int) -> None:
    """Average gradients over a group, in place, in buckets."""
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
