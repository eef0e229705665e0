"""Values of which each worker holds a slice: DTensors, and what layers return that fuse several.

A layer that computes queries, keys and values at once is sliced so that each worker has a slice of
every part, and splitting its output needs no communication. A DTensor would hold a slice of the
whole, and have to be gathered first.
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
    """The output of a layer that fuses several: the shape of the whole, and a slice of each part.

    It has no data of its own. `taken_apart` gives the parts; any other use asks for the `whole`.
    """

    device_mesh: DeviceMesh
    _local: torch.Tensor
    _parts: tuple[int, ...]

    @staticmethod
    def __new__(cls, local: torch.Tensor, parts: Sequence[int], mesh: DeviceMesh) -> "Fused":
        """The output of which this worker has `local`, the slices of `parts` behind each other."""
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
        """Nothing is computed with it as it is."""
        raise NotImplementedError(f"{function} of a sliced layer's output outside of `computing`")

    def whole(self) -> torch.Tensor:
        """The output as it would be on one worker."""
        return torch.cat([part.full_tensor() for part in self._split()], dim=-1)

    def taken_apart(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a function gives that needs no other worker, or NotImplemented."""
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
        """The last dimension as (parts, heads, …), each worker having some heads of every part."""
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
    """A value as a DTensor: sliced as it is, or the same on all workers.

    The gradient of a value that was whole is summed over the slices that it meets.
    """
    # Summands are summed up first: DTensor cannot take every gradient of them back.
    if isinstance(value, Fused) or (
        isinstance(value, DTensor) and value.placements[0].is_partial()
    ):
        value = whole(value)
    if isinstance(value, DTensor):
        return value
    return DTensor.from_local(value, mesh, [Replicate()], run_check=False)


def placed(value: DTensor, placement: Placement) -> DTensor:
    """A value sliced in another way, if it is not sliced in this way already."""
    same = value.placements == (placement,)
    return value if same else value.redistribute(placements=[placement])


def whole(value: torch.Tensor) -> torch.Tensor:
    """A value as every worker would have it alone; where it is in slices, they are gathered."""
    if isinstance(value, Fused):
        return value.whole()
    if isinstance(value, DTensor):
        gathered: torch.Tensor = value.full_tensor()
        return gathered
    return value


def everything_whole(nest: Any) -> Any:
    """A nest whose values are all whole."""
    return tree_map_only(torch.Tensor, whole, nest)
