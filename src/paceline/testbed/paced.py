"""A paced device: layers that take a given time and produce real gradients of a given size.

It sleeps instead of computing, so that many nodes, each with its own device, run on few cores
while their communication is real.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from paceline.specs.errors import PacelineError

_BYTES_PER_PARAMETER = 4
# Sleeps end late by up to this much when other processes have the core; more means that the CPU
# is overloaded, which later waits must not hide.
_MOST_LATENESS_TO_MAKE_UP_SECONDS = 0.005


@dataclass(frozen=True)
class PacedCost:
    """The cost of a layer: its times on the emulated device, and the bytes of its fp32 weights."""

    forward_seconds: float
    backward_seconds: float
    parameter_bytes: int
    for_each_sample: bool = False
    """Whether the times are per sample; otherwise they are per batch."""

    def __post_init__(self) -> None:
        if min(self.forward_seconds, self.backward_seconds, self.parameter_bytes) < 0:
            raise PacelineError(
                f"a layer has a negative cost: {self}", fix="give costs of 0 or more"
            )
        if self.parameter_bytes % _BYTES_PER_PARAMETER:
            raise PacelineError(
                f"{self.parameter_bytes} bytes are not a whole number of float32 parameters",
                fix="give parameter_bytes as a multiple of 4",
            )


class _Pace:
    """Waits that are exact on average: the next sleep makes up for the last one's overshoot."""

    def __init__(self) -> None:
        self._late_seconds = 0.0

    def fill_up(self, started: float, seconds: float) -> None:
        """Sleep until `seconds` have passed since `started`, including any computation."""
        if not seconds:
            return
        due = started + seconds - self._late_seconds
        time.sleep(max(0.0, due - time.perf_counter()))
        lateness = max(0.0, time.perf_counter() - due)
        self._late_seconds = min(lateness, _MOST_LATENESS_TO_MAKE_UP_SECONDS)


def _times(cost: PacedCost, inputs: Tensor) -> int:
    return len(inputs) if cost.for_each_sample else 1


class _PacedScale(torch.autograd.Function):
    """Compute input × (1 + mean of the weights) and its true gradients, each in its given time."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weights: Tensor, cost: PacedCost, pace: _Pace) -> Tensor:
        started = time.perf_counter()
        scale = 1 + weights.mean() if weights.numel() else weights.new_ones(())
        ctx.save_for_backward(inputs, scale)
        ctx.weights_shape, ctx.cost, ctx.pace = weights.shape, cost, pace
        outputs = inputs * scale
        pace.fill_up(started, cost.forward_seconds * _times(cost, inputs))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        started = time.perf_counter()
        inputs, scale = ctx.saved_tensors
        share = (output_gradient * inputs).sum() / max(1, ctx.weights_shape.numel())
        weights_gradient = torch.empty(ctx.weights_shape, dtype=scale.dtype, device=scale.device)
        weights_gradient.copy_(share.expand(ctx.weights_shape))
        input_gradient = output_gradient * scale
        ctx.pace.fill_up(started, ctx.cost.backward_seconds * _times(ctx.cost, inputs))
        return input_gradient, weights_gradient, None, None


class PacedLayer(nn.Module):
    """A layer whose forward and backward passes take given times.

    It scales its input by (1 + the mean of its weights); weights start at 0. Every weight
    therefore has the same gradient: sum(output gradient × input) / number of weights.
    """

    def __init__(self, cost: PacedCost, pace: _Pace) -> None:
        super().__init__()
        self.cost = cost
        self._pace = pace
        self.weights = nn.Parameter(torch.zeros(cost.parameter_bytes // _BYTES_PER_PARAMETER))

    def forward(self, inputs: Tensor) -> Tensor:
        """Scale the inputs, in the time that the cost gives."""
        result: Tensor = _PacedScale.apply(inputs, self.weights, self.cost, self._pace)  # type: ignore[no-untyped-call]
        return result


class PacedModel(nn.Sequential):
    """Paced layers in sequence: any numeric tensor in, a tensor of the same shape out."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Pass the inputs through all layers."""
        inputs = inputs.float() if not inputs.is_floating_point() else inputs
        if torch.is_grad_enabled() and not inputs.requires_grad:
            # Otherwise layers before the first one with weights would skip their backward pass.
            inputs = inputs.detach().requires_grad_()
        for layer in self:
            inputs = layer(inputs)
        return inputs


def paced_model(layers: Sequence[PacedCost]) -> nn.Module:
    """Return a model whose layers take the given times and have gradients of the given sizes.

    Input: any tensor, such as (batch, features). Output: a float tensor of the same shape, for
    any loss. The backward pass runs from the last layer to the first, and a layer's gradient is
    ready before the preceding layer starts its wait, so DDP overlaps as on a real device.
    """
    pace = _Pace()
    return PacedModel(*(PacedLayer(cost, pace) for cost in layers))
