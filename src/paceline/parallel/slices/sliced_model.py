"""A model sliced by tensor parallelism."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import implicit_replication

from paceline.checkpoints.tensor_extent import Extent
from paceline.parallel.forward_trace import transposed
from paceline.parallel.slices.layers import Layers
from paceline.parallel.slices.sliced_tensors import everything_whole
from paceline.parallel.slices.sliced_values import SlicedValues
from paceline.parallel.slices.slicing import Slicing


@dataclass(frozen=True)
class Cut:
    """How a parameter is sliced: each part along one dimension, the last slice possibly smaller."""

    dimension: int
    parts: tuple[int, ...]

    def slice(self, tensor: torch.Tensor, number: int, ways: int) -> torch.Tensor:
        """Return one worker's slice of a tensor."""
        parts = torch.split(tensor, list(self.parts), self.dimension)
        slices = [part.chunk(ways, self.dimension)[number] for part in parts]
        return torch.cat(slices, self.dimension)

    def joined(self, slices: list[torch.Tensor]) -> torch.Tensor:
        """Return the full tensor from the slices of all workers."""
        pieces = [
            torch.split(each, self.shares(number, len(slices)), self.dimension)
            for number, each in enumerate(slices)
        ]
        in_order = [piece for part in zip(*pieces, strict=True) for piece in part]
        return torch.cat(in_order, self.dimension)

    def shares(self, number: int, ways: int) -> list[int]:
        """Return the size of a worker's slice of each part."""
        most = [-(-part // ways) for part in self.parts]
        return [
            min(share, part - number * share) for share, part in zip(most, self.parts, strict=True)
        ]

    def ranges(self, number: int, ways: int) -> list[range]:
        """Return the range of a worker's slice of each part within the full tensor."""
        begins = accumulate(self.parts, initial=0)
        found = []
        for begin, part, share in zip(begins, self.parts, self.shares(number, ways), strict=False):
            first = begin + number * -(-part // ways)
            found.append(range(first, first + share))
        return found


class Cuts:
    """How each parameter of a model is sliced, under every name of the parameter."""

    def __init__(self, model: nn.Module, slicing: Slicing, mesh: DeviceMesh) -> None:
        self.slicing, self.mesh = slicing, mesh
        self.of = dict(_cuts(model, slicing))

    def own(self, parameter_name: str, whole: torch.Tensor) -> torch.Tensor:
        """Return this worker's slice of a parameter or its gradient, or all of it if unsliced."""
        if parameter_name not in self.of:
            return whole
        number, ways = self.mesh.get_local_rank(), self.mesh.size()
        return self.of[parameter_name].slice(whole, number, ways)


class Sliced:
    """Slices a model in place.

    Parameters become this worker's slices, which are plain tensors to optimizers, replicas and
    shards. Inside `computing`, the user's code sees full shapes only.

    Workers that slice a model together use the same random seed: dropout of sliced values differs
    between workers, and dropout of full values must be the same on all.
    """

    def __init__(self, model: nn.Module, cuts: Cuts, *, sequence: bool) -> None:
        self.cuts, self._cuts, self._mesh = cuts, cuts.of, cuts.mesh
        self._layers = Layers(self._mesh, sequence=sequence)
        slicing = cuts.slicing
        self._set_forwards(model, slicing)
        self._cut_parameters(model)
        model.register_forward_hook(partial(self._layers.leaving_model, slicing.head is not None))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Enable sliced computation; wrap forward, loss and backward in this; not reentrant."""
        try:
            with implicit_replication(), SlicedValues(self._mesh):
                yield
        finally:
            self._layers.forget()

    def whole_output(self, output: Any) -> Any:
        """Return the model's output with all slices gathered."""
        return everything_whole(output)

    def is_sliced(self, parameter_name: str) -> bool:
        """Whether workers hold different slices of a parameter rather than the same full one."""
        return parameter_name in self._cuts

    def extent(self, parameter_name: str, held: tuple[int, ...]) -> Extent:
        """Return the extent of this worker's slice in the full parameter."""
        cut, number, ways = (
            self._cuts[parameter_name],
            self._mesh.get_local_rank(),
            self._mesh.size(),
        )
        return Extent.slice(held, cut.dimension, cut.ranges(number, ways), sum(cut.parts))

    def gather(self, parameter_name: str, local: torch.Tensor) -> torch.Tensor:
        """Return the full parameter from the slices of all workers; a collective call."""
        if parameter_name not in self._cuts:
            return local
        cut, ways = self._cuts[parameter_name], self._mesh.size()
        lengths = [sum(cut.shares(number, ways)) for number in range(ways)]
        lacking = list(local.shape)
        lacking[cut.dimension] = max(lengths) - local.shape[cut.dimension]
        padded = torch.cat([local.detach(), local.new_zeros(lacking)], cut.dimension)
        gathered = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(gathered, padded, group=self._mesh.get_group())
        return cut.joined(
            [
                each.narrow(cut.dimension, 0, length)
                for each, length in zip(gathered, lengths, strict=True)
            ]
        )

    def _set_forwards(self, model: nn.Module, slicing: Slicing) -> None:
        for name, parts in slicing.columns.items():
            layer = model.get_submodule(name)
            layer.forward = partial(self._layers.column, layer, parts)
        for name in slicing.rows:
            layer = model.get_submodule(name)
            layer.forward = partial(self._layers.row, layer)
        if slicing.head is not None:
            layer = model.get_submodule(slicing.head)
            (outputs,) = self._cuts[f"{slicing.head}.weight"].parts
            layer.forward = partial(self._layers.head, layer, outputs)
        for name in slicing.embeddings:
            layer = model.get_submodule(name)
            assert isinstance(layer, nn.Embedding)
            (words,) = self._cuts[f"{name}.weight"].parts
            first = self._mesh.get_local_rank() * -(-words // self._mesh.size())
            layer.forward = partial(  # type: ignore[method-assign]
                self._layers.embedding, layer, first
            )

    def _cut_parameters(self, model: nn.Module) -> None:
        names: dict[int, list[str]] = {}
        for name in self._cuts:
            names.setdefault(id(model.get_parameter(name)), []).append(name)
        for tied in names.values():
            parameter = model.get_parameter(tied[0])
            local = self.cuts.own(tied[0], parameter.detach()).clone()
            cut = nn.Parameter(local, requires_grad=parameter.requires_grad)
            cut.__dict__.update(parameter.__dict__)  # such as marks for the optimizer
            for name in tied:
                module, _, attribute = name.rpartition(".")
                setattr(model.get_submodule(module), attribute, cut)


def _cuts(model: nn.Module, slicing: Slicing) -> Iterator[tuple[str, Cut]]:
    """Yield the cut of each sliced parameter, for every name of the parameter."""
    outputs = dict(slicing.columns)
    if slicing.head is not None:
        head = model.get_submodule(slicing.head)
        outputs[slicing.head] = (head.get_parameter("weight").shape[int(transposed(head))],)
    for name, parts in outputs.items():
        layer = model.get_submodule(name)
        yield f"{name}.weight", Cut(int(transposed(layer)), parts)
        if layer.bias is not None:
            yield f"{name}.bias", Cut(0, parts)
    for name in slicing.rows:
        layer = model.get_submodule(name)
        dimension = int(not transposed(layer))
        yield f"{name}.weight", Cut(dimension, (layer.get_parameter("weight").shape[dimension],))
    for name in slicing.embeddings:
        words = model.get_submodule(name).get_parameter("weight").shape[0]
        yield f"{name}.weight", Cut(0, (words,))
