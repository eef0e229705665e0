"""Cross entropy of logits that are sliced along the classes."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Compute torch's cross entropy without gathering the logits; NotImplemented if it cannot."""
    classes = min(1, input.ndim - 1)
    simple = weight is None and size_average is None and reduce is None and not label_smoothing
    if not simple or not isinstance(input, DTensor) or input.placements != (Shard(classes),):
        return NotImplemented
    if isinstance(target, DTensor):
        target = target.full_tensor()
    if target.is_floating_point():
        return NotImplemented
    local = input.to_local().movedim(classes, -1)
    counted = target != ignore_index
    each = _losses(local, target.where(counted, 0), _first_class(input, classes), input.device_mesh)
    each = each.where(counted, 0.0)
    if not torch.is_autocast_enabled(local.device.type):
        each = each.to(local.dtype)
    if reduction == "none":
        return each
    return each.sum() / counted.sum() if reduction == "mean" else each.sum()


def _first_class(logits: DTensor, classes: int) -> int:
    number = logits.device_mesh.get_local_rank()
    return number * -(-logits.shape[classes] // logits.device_mesh.size())


def _losses(
    logits: torch.Tensor, target: torch.Tensor, first: int, mesh: DeviceMesh
) -> torch.Tensor:
    losses: torch.Tensor = _Losses.apply(logits, target, first, mesh)  # type: ignore[no-untyped-call]
    return losses


class _Losses(torch.autograd.Function):
    """-log softmax(logits)[target] for each position."""

    @staticmethod
    def forward(
        context: Any, logits: torch.Tensor, target: torch.Tensor, first: int, mesh: DeviceMesh
    ) -> torch.Tensor:
        # Not saved for backward: only the mesh holds a reference to the group.
        group = mesh.get_group()
        shifted = logits.to(torch.promote_types(logits.dtype, torch.float32))
        highest = shifted.amax(dim=-1)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=group)
        shifted = shifted - highest.unsqueeze(-1)
        at = target - first
        is_here = (at >= 0) & (at < logits.shape[-1])
        at = at.where(is_here, 0).unsqueeze(-1)
        here = shifted.gather(-1, at).squeeze(-1).where(is_here, 0.0)
        if shifted.device.type == "cpu":
            # Subnormal numbers are fifty times as slow on a CPU, and add nothing.
            shifted.clamp_(min=-64)
        exponentials = shifted.exp_()
        sums = torch.stack([exponentials.sum(dim=-1), here])
        dist.all_reduce(sums, group=group)
        total, chosen = sums.unbind()
        context.save_for_backward(exponentials.div_(total.unsqueeze(-1)), at, is_here)
        context.dtype = logits.dtype
        return total.log() - chosen

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        probabilities, at, is_here = context.saved_tensors
        slope = probabilities.scatter_add(-1, at, -is_here.to(probabilities.dtype).unsqueeze(-1))
        return (slope * gradient.unsqueeze(-1)).to(context.dtype), None, None, None
