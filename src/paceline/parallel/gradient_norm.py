"""The norm of a gradient spread over several workers, with each part counted once."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import foreach_mul_, foreach_norm
from paceline.specs import Layout

if TYPE_CHECKING:
    from paceline.parallel.parallel_model import ParallelModel


def squared_norm(
    parameters: Iterable[nn.Parameter],
    layout: Layout,
    groups: Groups,
    *,
    replicas_differ: bool = False,
) -> torch.Tensor:
    """Return the squared norm over all parameters, given those that count on this worker.

    One sum over all workers: shards and stages hold different parts; tensor-parallel workers hold
    different slices of sliced parameters and equal values of the others; replicas hold equal
    values. With `replicas_differ`, each replica has its own gradients, and the norm is that of one
    replica.
    """
    gradients = [local_tensor(each.grad) for each in parameters if each.grad is not None]
    # One operator for all tensors each: a loop would launch kernels for every parameter.
    norms = (
        torch.stack(foreach_norm(gradients)) if gradients else torch.zeros(1, device=groups.device)
    )
    total = norms.to(groups.device, torch.float32).square().sum()
    if replicas_differ:
        groups.sum_in_replica(total)
    elif layout.workers > layout.replicas:
        groups.sum(total)
        total /= layout.replicas
    return total


def counted(
    parameters: Iterable[tuple[str, nn.Parameter]],
    layout: Layout,
    groups: Groups,
    *,
    is_sliced: Callable[[str], bool] | None,
) -> list[nn.Parameter]:
    """Return the parameters that this worker adds to a norm: the first slice has the whole ones."""
    first_slice = layout.position(groups.placement.rank).slice == 0
    return [
        parameter
        for name, parameter in parameters
        if first_slice or (is_sliced and is_sliced(name))
    ]


def clip(
    parallel_model: "ParallelModel", largest_norm: float, squared: torch.Tensor | None = None
) -> None:
    """Clip the gradient to a norm over all parameters of the model, on whichever worker they are.

    `squared` is the current squared norm, if the caller already has it.
    """
    if squared is None:
        squared = parallel_model.squared_norm()
    factor = (largest_norm / (squared.sqrt() + 1e-6)).clamp(max=1.0)
    gradients = [
        local_tensor(each.grad) for each in parallel_model.parameters() if each.grad is not None
    ]
    foreach_mul_(gradients, factor)
