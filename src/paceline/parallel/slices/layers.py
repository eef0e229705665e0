"""Sliced layers: each worker computes a tensor-parallel slice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional as F

from paceline.comm.torch_internals import tree_map_only
from paceline.parallel.forward_trace import transposed
from paceline.parallel.slices.sliced_tensors import Fused, placed, spread, whole


@dataclass(frozen=True)
class _Taken:
    """The last input of a sliced layer, reused when several layers take it (queries, keys,
    values)."""

    value: torch.Tensor
    state: tuple[int, bool]
    """The value's version, which counts changes in place, and whether gradients are enabled."""
    here: torch.Tensor


class Layers:
    """The forwards of sliced layers, and the layout of their inputs and outputs."""

    def __init__(self, mesh: DeviceMesh, *, sequence: bool) -> None:
        self._mesh = mesh
        self._sequence = sequence
        self._taken: _Taken | None = None

    def __deepcopy__(self, memo: Any) -> "Layers":
        """Return self: a copy of a model, such as a weight average, uses the same workers."""
        return self

    def column(self, layer: nn.Module, parts: Sequence[int], input: torch.Tensor) -> torch.Tensor:
        """Run a linear layer sliced along its outputs, which consist of consecutive `parts`."""
        local = _product(layer, self._entering(input), with_bias=True)
        if len(parts) > 1:
            return Fused(local, parts, self._mesh)
        return DTensor.from_local(local, self._mesh, [Shard(-1)], run_check=False)

    def head(self, layer: nn.Module, outputs: int, input: torch.Tensor) -> torch.Tensor:
        """Run the last linear layer, sliced along its outputs; the last slice may be smaller."""
        local = _product(layer, self._entering(input), with_bias=True)
        self.forget()
        form = torch.empty((*local.shape[:-1], outputs), device="meta")
        return DTensor.from_local(
            local, self._mesh, [Shard(-1)], run_check=False, shape=form.shape, stride=form.stride()
        )

    def row(self, layer: nn.Module, input: torch.Tensor) -> torch.Tensor:
        """Run a linear layer sliced along its inputs."""
        self.forget()
        inputs = spread(input, self._mesh)
        local = placed(inputs, Shard(inputs.ndim - 1)).to_local()
        summed = self._leaving(_product(layer, local, with_bias=False))
        bias = _tensor(layer, "bias")
        return summed if bias is None else summed + bias.to(summed.dtype)

    def embedding(self, layer: nn.Embedding, first: int, input: torch.Tensor) -> torch.Tensor:
        """Run an embedding sliced along its vocabulary; this worker's slice starts at index
        `first`."""
        weight = layer.weight
        at = input - first
        is_here = (at >= 0) & (at < len(weight))
        padding = -1 if layer.padding_idx is None else layer.padding_idx - first
        found = F.embedding(
            at.where(is_here, 0), weight, padding if 0 <= padding < len(weight) else None
        )
        return self._leaving(found * is_here.unsqueeze(-1))

    def leaving_model(self, keeps_head: bool, model: nn.Module, args: Any, output: Any) -> Any:
        """Gather all outputs of the model except a sliced head's, for the loss; a forward hook."""
        del model, args

        def checked(value: torch.Tensor) -> torch.Tensor:
            by_classes = (Shard(value.ndim - 1),)
            if keeps_head and isinstance(value, DTensor) and value.placements == by_classes:
                return value
            return whole(value)

        return tree_map_only(torch.Tensor, checked, output)

    def forget(self) -> None:
        """Drop the cached input of the last sliced layer."""
        self._taken = None

    def _entering(self, value: torch.Tensor) -> torch.Tensor:
        """Return the full value, with a gradient summed over the workers' layers that take it.

        Layers that take the same value share the result, and so one all-reduce of its gradient.
        """
        version = 0 if value.is_inference() else value._version
        state = (version, torch.is_grad_enabled())
        taken = self._taken
        if taken is not None and taken.value is value and taken.state == state:
            return taken.here
        lower = _as_computed(value)
        if isinstance(lower, DTensor | Fused):
            everywhere = placed(spread(lower, self._mesh), Replicate())
            here: torch.Tensor = everywhere.to_local(grad_placements=[Partial()])
        else:
            here = _SummedGradient.apply(lower, self._mesh)  # type: ignore[no-untyped-call]
        self._taken = _Taken(value, state, here)
        return here

    def _leaving(self, local: torch.Tensor) -> torch.Tensor:
        """Return the sum over all workers: in full, or sharded along the sequence."""
        if self._sequence and local.ndim == 3 and local.shape[1] % self._mesh.size() == 0:
            summand = DTensor.from_local(local, self._mesh, [Partial()], run_check=False)
            return placed(summand, Shard(1))
        summed: torch.Tensor = _Summed.apply(local, self._mesh)  # type: ignore[no-untyped-call]
        return summed


class _SummedGradient(torch.autograd.Function):
    """Identity on a full value; backward sums its gradient over all workers.

    DTensor could do this and `_Summed` as well, at several times the cost.
    """

    @staticmethod
    def forward(context: Any, value: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
        context.mesh = mesh
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return _summed(gradient, context.mesh), None


class _Summed(torch.autograd.Function):
    """The sum over all workers; backward passes the gradient to every summand unchanged."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
        del context
        return _summed(value, mesh)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        del context
        return gradient, None


def _summed(value: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    # Copy first, because others may hold the input: recomputation saves the outputs of products.
    total = value.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=mesh.get_group())
    return total


def _as_computed(value: torch.Tensor) -> torch.Tensor:
    """Cast a value to the autocast precision of products, so that less is sent."""
    device = value.device.type
    if value.dtype is not torch.float32 or not torch.is_autocast_enabled(device):
        return value
    return value.to(torch.get_autocast_dtype(device))


def _product(layer: nn.Module, value: torch.Tensor, *, with_bias: bool) -> torch.Tensor:
    weight = _tensor(layer, "weight")
    assert weight is not None
    bias = _tensor(layer, "bias") if with_bias else None
    return F.linear(value, weight.t() if transposed(layer) else weight, bias)


def _tensor(layer: nn.Module, name: str) -> torch.Tensor | None:
    """Return a parameter, or its placeholder if it belongs to another pipeline stage."""
    tensor = getattr(layer, name)
    assert tensor is None or isinstance(tensor, torch.Tensor)
    return tensor
