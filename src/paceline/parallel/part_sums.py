"""Norms of whole weights for optimizers that need them, from the parts that workers hold."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from paceline.comm.groups import Groups
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import Layout
from paceline.user.layerwise import LayerwiseOptimizer


class PartSums:
    """Sums of squares over the workers that hold parts of the same weights.

    All workers create it together. `counts`: whether this worker adds its part of a parameter, or
    another one adds the same.
    """

    def __init__(
        self, layout: Layout, groups: Groups, counts: Callable[[nn.Parameter], bool]
    ) -> None:
        groups.join_parts(layout)
        self._groups, self._counts = groups, counts
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, parameters: Sequence[nn.Parameter], squares: torch.Tensor) -> torch.Tensor:
        """Return the sums of squares, a column per parameter."""
        key = tuple(map(id, parameters))
        if key not in self._masks:
            counted = [float(self._counts(each)) for each in parameters]
            self._masks[key] = torch.tensor(counted, device=squares.device)
        return self._groups.sum_over_parts(squares * self._masks[key])


def give_whole_norms(
    optimizer: torch.optim.Optimizer, model: ParallelModel, layout: Layout, groups: Groups
) -> None:
    """Let an optimizer that adapts rates to layers use norms of the model's whole weights."""
    if layout.shards * layout.tensor > 1:
        first = {id(each.tensor) for each in model.stored() if each.in_replica.copy == 0}
        give_sums(optimizer, layout, groups, lambda parameter: id(parameter) in first)


def give_sums(
    optimizer: torch.optim.Optimizer,
    layout: Layout,
    groups: Groups,
    counts: Callable[[nn.Parameter], bool],
) -> None:
    """Let an optimizer that adapts rates to layers, or one that it wraps, use sums over parts."""
    layerwise = [
        each
        for each in (optimizer, *vars(optimizer).values())
        if isinstance(each, LayerwiseOptimizer)
    ]
    if layerwise:
        sums = PartSums(layout, groups, counts)
        for each in layerwise:
            each.sum_parts = sums
