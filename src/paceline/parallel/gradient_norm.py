"""The norm of a gradient that lies on several workers, each part of it counted once."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.comm.torch_internals import foreach_mul_, foreach_norm
from paceline.specs import Layout

if TYPE_CHECKING:
    from paceline.parallel.arranged import Arranged


def squared_norm(
    parameters: Iterable[tuple[str, nn.Parameter]],
    layout: Layout,
    groups: Groups,
    *,
    is_sliced: Callable[[str], bool] | None,
    replicas_differ: bool = False,
) -> torch.Tensor:
    """The squared norm over all parameters of the model, given those that count on this worker.

    One sum over all workers: shards and stages hold different parts, slices different parts of
    sliced parameters and the same of others, replicas the same of all, unless each of them has
    gradients of its own: then the norm is that of one of them.
    """
    first_slice = layout.position(groups.placement.rank).slice == 0
    gradients = [
        local_tensor(parameter.grad)
        for name, parameter in parameters
        if parameter.grad is not None and (first_slice or (is_sliced and is_sliced(name)))
    ]
    norms = foreach_norm(gradients) if gradients else []
    total = torch.zeros((), device=groups.device)
    for norm in norms:
        total += norm.float() ** 2
    if replicas_differ:
        groups.sum_in_copy(total)
    elif layout.workers > layout.replicas:
        groups.sum(total)
        total /= layout.replicas
    return total


def clip(arranged: "Arranged", largest_norm: float, squared: torch.Tensor | None = None) -> None:
    """Scale the gradient down to a norm over all parameters of the model, wherever they are.

    `squared`: its squared norm now, where it is known already.
    """
    if squared is None:
        squared = arranged.squared_norm()
    factor = (largest_norm / (squared.sqrt() + 1e-6)).clamp(max=1.0)
    gradients = [local_tensor(each.grad) for each in arranged.parameters() if each.grad is not None]
    foreach_mul_(gradients, factor)
