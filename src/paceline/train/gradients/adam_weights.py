"""Weights of coordinates in the gradient noise of optimizers that divide by past gradients' size.

The noise scale that decides about a batch is tr(H S) / G'HG, with the curvature H (McCandlish et
al., 2018). Adam scales coordinate i by P_i = 1 / (sqrt(v_i) + d), which stands in for 1 / H_i; in
its coordinates the ratio becomes tr(P S) / G'PG. v: mean squared gradient before the step, without
the bias of its beginning. Adam's own d of 1e-8 would let coordinates that rarely have a gradient
decide alone; d is a part of the root mean square of sqrt(v) over all parameters instead.
"""

from typing import Any, Self

import torch
from torch import nn

from paceline.comm.torch_internals import foreach_norm

DAMPING = 0.1
"""Fixed before any of the tasks that it is judged by was run."""


class AdamWeights:
    """The weights of one step, from the optimizer's state before it; nothing is kept or read."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._state = optimizer.state
        groups = [
            (group["params"], _unbiased(optimizer, group)) for group in optimizer.param_groups
        ]
        sums, count = [torch.zeros((), device=device)], 0
        for parameters, part in groups:
            count += sum(each.numel() for each in parameters)
            squares = [found for each in parameters if (found := self._squares(each)) is not None]
            # One operator for all: none of them is negative, so that a sum is a norm.
            norms = foreach_norm(squares, 1, dtype=torch.float32) if squares else ()
            sums += [each / part for each in norms]
        self._damping = DAMPING * torch.sqrt(torch.stack(sums).sum() / count)
        self._damped = {}
        for parameters, part in groups:
            root = part**0.5
            self._damped.update(dict.fromkeys(parameters, (root, self._damping * root)))

    @classmethod
    def before_step(cls, optimizer: torch.optim.Optimizer, device: torch.device) -> Self | None:
        """Return the weights of the next step; None before the optimizer's first one."""
        return cls(optimizer, device) if optimizer.state else None

    def square(self, parameter: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
        """Return the weighted squared norm of a parameter's gradient."""
        gradient, squares = _real(gradient.detach()).float(), self._squares(parameter)
        if squares is None:
            return gradient.square().sum() / self._damping
        root, damping = self._damped[parameter]
        # Few passes over memory, and one copy of a parameter's size.
        divided = squares.float().sqrt().add_(damping)
        torch.div(gradient, divided, out=divided)
        return torch.dot(divided.flatten(), gradient.flatten()) * root

    def _squares(self, parameter: nn.Parameter) -> torch.Tensor | None:
        state = self._state.get(parameter, {})
        found: torch.Tensor | None = state.get("exp_avg_sq", state.get("square_avg"))
        return None if found is None else _real(found)


def _real(values: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs: optimizers square each part for itself."""
    return torch.view_as_real(values) if values.is_complex() else values


def _unbiased(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> float | torch.Tensor:
    """Return the part of the mean squared gradient that past gradients have, not its first zeros.

    A count that is on the device stays there.
    """
    if "betas" not in group:  # RMSprop does not correct it
        return 1.0
    counts = (optimizer.state.get(each, {}).get("step") for each in group["params"])
    steps = next((each for each in counts if each is not None), None)
    if steps is None:
        return 1.0
    if isinstance(steps, torch.Tensor) and steps.device.type == "cpu":
        steps = float(steps)
    part: float | torch.Tensor = 1.0 - group["betas"][1] ** steps
    return part
