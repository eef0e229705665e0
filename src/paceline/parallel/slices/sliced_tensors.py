"""Sliced values: DTensors, and the outputs of fused layers.

A layer that computes queries, keys and values at once is sliced so that each worker has a slice of
every part; splitting its output then needs no communication. A DTensor would hold a slice of the
whole output, and would have to be gathered first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from paceline.comm.torch_internals import make_wrapper_subclass, tree_map_only

_SPLITS = frozenset({"chunk", "split", "split_with_sizes", "tensor_split"})
_UNFOLDS = frozenset({"view", "reshape", "unflatten"})
_SAME_FORM = frozenset({"to", "float", "half", "bfloat16", "double", "contiguous", "clone"})


class Fused(torch.Tensor):
    """The output of a fused layer: the shape of the full output, with a slice of each part.

    It has no data of its own. `taken_apart` returns the parts; any other use calls `whole`.
    """

    device_mesh: DeviceMesh
    _local: torch.Tensor
    _parts: tuple[int, ...]

    @staticmethod
    def __new__(cls, local: torch.Tensor, parts: Sequence[int], mesh: DeviceMesh) -> "Fused":
        """Create an output from `local`, this worker's concatenated slices of `parts`."""
        fused: Fused = make_wrapper_subclass(
            cls, (*local.shape[:-1], sum(parts)), dtype=local.dtype, device=local.device
        )
        fused.device_mesh, fused._local, fused._parts = mesh, local, tuple(parts)
        return fused

    def __init__(self, local: torch.Tensor, parts: Sequence[int], mesh: DeviceMesh) -> None:
        super().__init__()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Raise: no operator runs on a fused output directly."""
        raise NotImplementedError(f"{function} of a sliced layer's output outside of `computing`")

    def whole(self) -> torch.Tensor:
        """Return the output as one worker would compute it."""
        return torch.cat([part.full_tensor() for part in self._split()], dim=-1)

    def taken_apart(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a function that needs no other worker, or NotImplemented."""
        name = function.__name__
        if name in _SAME_FORM:
            local = function(self._local, *args, **kwargs)
            return Fused(local, self._parts, self.device_mesh)
        if name in _SPLITS | _UNFOLDS:
            form = torch.empty(self.shape, dtype=self.dtype, device="meta")
            result = function(form, *args, **kwargs)
            return self._split_as(result) if name in _SPLITS else self._unfolded_as(result)
        return NotImplemented

    def _split_as(self, forms: Sequence[torch.Tensor]) -> Any:
        if [form.shape for form in forms] != [(*self.shape[:-1], part) for part in self._parts]:
            return NotImplemented
        return self._split()

    def _split(self) -> tuple[DTensor, ...]:
        shares = [part // self.device_mesh.size() for part in self._parts]
        return tuple(
            DTensor.from_local(local, self.device_mesh, [Shard(-1)], run_check=False)
            for local in torch.split(self._local, shares, dim=-1)
        )

    def _unfolded_as(self, form: torch.Tensor) -> Any:
        """View the last dimension as (parts, heads, …), with local heads of every part."""
        ways, last = self.device_mesh.size(), self.ndim - 1
        if form.ndim < last + 2 or form.shape[:last] != self.shape[:last]:
            return NotImplemented
        if len({*self._parts}) > 1 or form.shape[last] != len(self._parts):
            return NotImplemented
        if form.shape[last + 1] % ways:
            return NotImplemented
        sizes = list(form.shape)
        sizes[last + 1] //= ways
        local = self._local.reshape(sizes)
        return DTensor.from_local(local, self.device_mesh, [Shard(last + 1)], run_check=False)


def spread(value: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Return a value as a DTensor: sliced values unchanged, others replicated on all workers.

    The gradient of a full value is summed over the slices it is combined with.
    """
    # Reduce partial sums first: DTensor cannot take every gradient of them back.
    if isinstance(value, Fused) or (
        isinstance(value, DTensor) and value.placements[0].is_partial()
    ):
        value = whole(value)
    if isinstance(value, DTensor):
        return value
    return DTensor.from_local(value, mesh, [Replicate()], run_check=False)


def placed(value: DTensor, placement: Placement) -> DTensor:
    """Redistribute a value to this placement, unless it has it already."""
    same = value.placements == (placement,)
    return value if same else value.redistribute(placements=[placement])


def whole(value: torch.Tensor) -> torch.Tensor:
    """Return the full value, equal on every worker; gather it if it is sliced."""
    if isinstance(value, Fused):
        return value.whole()
    if isinstance(value, DTensor):
        gathered: torch.Tensor = value.full_tensor()
        return gathered
    return value


def everything_whole(nest: Any) -> Any:
    """Return a nested structure with all its tensors in full."""
    return tree_map_only(torch.Tensor, whole, nest)
