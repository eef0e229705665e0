"""Layers that can be sliced regardless of their connections, and the layout's instructions."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property

from torch import nn

from paceline.comm.torch_internals import own_parameters
from paceline.parallel.forward_trace import Trace, is_linear, transposed
from paceline.specs import Layout, PacelineError

NAMES_SHOWN = 5
"""Maximum number of layers named in an error."""


class Sliceable:
    """The layers of a model that can be sliced."""

    def __init__(self, model: nn.Module, seen: Trace, ways: int) -> None:
        self.linear = {name: each for name, each in model.named_modules() if is_linear(each)}
        self._model = model
        self._seen = seen
        self._ways = ways
        self._owners: dict[int, set[str]] = {}
        for name, module in model.named_modules():
            for each in module.parameters(recurse=False):
                self._owners.setdefault(id(each), set()).add(name)

    @cached_property
    def unfit(self) -> dict[str, str]:
        """Layers that are linear by their class but cannot be sliced, each with the reason."""
        called = {call.name for call in self._seen.layers}
        found = {}
        for name, module in self.linear.items():
            shared = self.sharing_with(name)
            if name in self._seen.output:  # a head may share its weight with embeddings
                shared -= {other for other in shared if self._is_embedding(other)}
            if not (transposed(module) or type(module).forward is nn.Linear.forward):
                found[name] = f"its class, {type(module).__name__}, does more than nn.Linear"
            elif "weight" not in own_parameters(module):
                found[name] = "its weight is computed from other parameters"
            elif shared:
                found[name] = f"it shares a parameter with {min(shared)}"
            elif name in self._used_directly:
                found[name] = "its weight is used outside of its own call"
            elif name not in called:
                found[name] = "it was not called"
        return found

    def sizes(self, name: str) -> tuple[int, int]:
        """Return the input and output sizes of a linear layer that can be sliced."""
        module = self.linear[name]
        shape = module.get_parameter("weight").shape
        return (shape[0], shape[1]) if transposed(module) else (shape[1], shape[0])

    def gives_all_a_share(self, size: int) -> bool:
        """Whether slices of `torch.chunk`, the last one possibly smaller, are all nonempty."""
        return -(-size // -(-size // self._ways)) == self._ways

    def embeddings(self, head: str | None) -> frozenset[str]:
        """Return the embeddings to slice, together with a head that may share their weight."""
        found = {
            name: module
            for name, module in self._model.named_modules()
            if isinstance(module, nn.Embedding) and self._can_slice_embedding(name, module)
        }
        # A table smaller than a layer is not worth the all-reduce of its lookup: it holds
        # positions, or the few values of a bias.
        others = [each for name, each in self.linear.items() if name != head]
        worth = max((_numbers(each) for each in others), default=0)
        return frozenset(
            name
            for name, module in found.items()
            if (sharing := self.sharing_with(name)) <= found.keys() | {head}
            and (head in sharing or _numbers(module) >= worth)
        )

    def sharing_with(self, name: str) -> set[str]:
        """Return the other modules that share a parameter with this one."""
        mine = self._model.get_submodule(name).parameters(recurse=False)
        return {other for each in mine for other in self._owners[id(each)]} - {name}

    @cached_property
    def _used_directly(self) -> set[str]:
        return {name.rpartition(".")[0] for name, _ in self._seen.parameters}

    def _is_embedding(self, name: str) -> bool:
        return isinstance(self._model.get_submodule(name), nn.Embedding)

    def _can_slice_embedding(self, name: str, module: nn.Embedding) -> bool:
        return (
            type(module).forward is nn.Embedding.forward
            and not (module.max_norm or module.scale_grad_by_freq or module.sparse)
            and "weight" in own_parameters(module)
            and name not in self._used_directly
            and self.gives_all_a_share(module.num_embeddings)
        )


def _numbers(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters(recurse=False))


def requested_slices(layout: Layout, layers: Mapping[str, nn.Module]) -> dict[str, str]:
    """Return the layout's instruction for each layer; the last matching pattern wins."""
    found: dict[str, str] = {}
    for pattern, to in layout.slices.items():
        matching = [name for name in layers if fnmatchcase(name, pattern)]
        if not matching:
            some = ", ".join([*layers][:NAMES_SHOWN])
            raise PacelineError(
                f"`slices` says {to} for {pattern!r}, but no linear layer has such a name",
                fix=f"use names such as {some}" if some else "leave `slices` out",
            )
        found |= dict.fromkeys(matching, to)
    return found


def impossible(
    requested: Mapping[str, str],
    sliceable: Sliceable,
    parts: Mapping[str, tuple[int, ...]],
    ways: int,
) -> Iterator[tuple[str, str]]:
    """Yield the layers that cannot follow the layout's instruction, each with the reason."""
    for name, to in requested.items():
        if to == "whole":
            continue
        if name in sliceable.unfit:
            yield name, sliceable.unfit[name]
            continue
        inputs, outputs = sliceable.sizes(name)
        split = parts.get(name, ())
        columns = split if sum(split) == outputs else (outputs,)
        for size in columns if to == "columns" else (inputs,):
            if size % ways:
                what = "outputs" if to == "columns" else "inputs"
                yield name, f"its {size} {what} cannot be divided by {ways}"
