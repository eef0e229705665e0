"""Trace of a model on a few samples: the layers it calls, their order and their inputs' sources.

The trace observes one forward of the user's own code. Tensor-parallel slicing and the cut into
pipeline stages both use it, so neither needs user annotations nor a model that exports as a graph.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from paceline.comm.torch_internals import CPU_ATTENTION, own_parameters, tree_leaves
from paceline.profile.regions import rows_of_blocks

Sources = frozenset[str]
"""Names of the layers, and of parameters used outside any layer, that a value comes from. The
output of a linear layer has that layer as its only source."""

_NOTHING: Sources = frozenset()


@dataclass(frozen=True)
class LayerCall:
    """A call of a module that has parameters but no submodules with parameters."""

    name: str
    sources: Sources
    """The sources of its inputs."""
    after_block: int
    """Number of blocks entered before: 0 before the first."""


@dataclass(frozen=True)
class BlockCall:
    """A call of one of the repeated blocks."""

    name: str
    arguments: tuple[int, ...]
    """Indices of the argument leaves that come from parameters, so other blocks must send them."""
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    gradients: tuple[bool, ...]
    """Whether a gradient flows back through each of these arguments."""
    flops_before: int
    """FLOPs computed before the block is entered."""


@dataclass
class Trace:
    """The record of one traced forward."""

    layers: list[LayerCall] = field(default_factory=list)
    blocks: list[BlockCall] = field(default_factory=list)
    parameters: list[tuple[str, int]] = field(default_factory=list)
    """Parameters used outside their module's call, and after how many blocks."""
    mixtures: set[Sources] = field(default_factory=set)
    """The sources of every computed value."""
    output: Sources = _NOTHING
    parts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Layers whose output is split along its last dimension, and the sizes of the parts."""
    heads: dict[str, set[int]] = field(default_factory=dict)
    """Layers whose output has its last dimension unfolded, and the first size of the result."""
    flops: int = 0


def is_layer(module: nn.Module) -> bool:
    """Whether a module has parameters but no submodules with parameters."""
    return bool(own_parameters(module)) and not any(
        next(child.parameters(), None) is not None for child in module.children()
    )


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a matrix product and nothing else."""
    return isinstance(module, nn.Linear) or transposed(module)


def transposed(module: nn.Module) -> bool:
    """Whether a linear layer's weight has the shape inputs x outputs: Hugging Face's in GPT-2."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def trace(model: nn.Module, run: Callable[[], Any]) -> Trace:
    """Trace `run`, which calls the model on a few samples."""
    seen = Trace()
    flops = FlopCounterMode(
        display=False,
        custom_mapping={CPU_ATTENTION: lambda q, k, v, *_, **__: sdpa_flop(q, k, v)},
    )
    watcher = _Watcher(model, seen, flops)
    with flops, watcher.hooks(model), watcher:
        output = run()
    seen.output = watcher.sources_of(output)
    seen.flops = flops.get_total_flops()
    return seen


class _Watcher(TorchFunctionMode):
    """Tracks every value from layer to layer."""

    def __init__(self, model: nn.Module, seen: Trace, flops: FlopCounterMode) -> None:
        super().__init__()
        self._seen = seen
        self._flops = flops
        self._sources: dict[int, tuple[Any, Sources]] = {}
        self._depth = 0
        self._parameters = {id(each): name for name, each in model.named_parameters()}

    def sources_of(self, value: Any) -> Sources:
        """Return the sources of the tensors in a nested structure."""
        found = (self._sources.get(id(leaf)) for leaf in tree_leaves(value))
        return frozenset().union(*(each[1] for each in found if each))

    def mark(self, value: Any, sources: Sources) -> None:
        """Record the sources of the tensors in a nested structure."""
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                # Keeping the tensor keeps its id from being reused.
                self._sources[id(leaf)] = (leaf, sources)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function and record the sources of its result."""
        given = [*tree_leaves(args), *tree_leaves(kwargs or {})]
        result = function(*args, **(kwargs or {}))
        changed = args[0] if function is torch.Tensor.__setitem__ else result
        if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(changed)):
            return result  # reading a weight's dtype or shape does not use it
        sources = self.sources_of(given) | self._direct(given)
        if sources:
            self.mark(changed, sources)
            self._seen.mixtures.add(sources)
        if len(sources) == 1 and args and isinstance(args[0], torch.Tensor):
            self._note_form(next(iter(sources)), function, args[0], result)
        return result

    def _direct(self, given: Sequence[Any]) -> Sources:
        """Return the parameters among the arguments of a function called outside any layer."""
        if self._depth:
            return _NOTHING
        names = {self._parameters[id(each)] for each in given if id(each) in self._parameters}
        blocks = len(self._seen.blocks)
        self._seen.parameters += [(name, blocks) for name in sorted(names)]
        return frozenset(names)

    def _note_form(self, layer: str, function: Any, value: torch.Tensor, result: Any) -> None:
        name = getattr(function, "__name__", "")
        if self._depth:
            return
        if name in ("split", "chunk", "tensor_split", "split_with_sizes"):
            if all(part.shape[:-1] == value.shape[:-1] for part in result):
                self._seen.parts[layer] = tuple(part.shape[-1] for part in result)
        elif (
            name in ("view", "reshape", "unflatten")
            and result.ndim > value.ndim
            and result.shape[: value.ndim - 1] == value.shape[:-1]
        ):
            self._seen.heads.setdefault(layer, set()).add(result.shape[value.ndim - 1])

    @contextmanager
    def hooks(self, model: nn.Module) -> Iterator[None]:
        """Trace the calls of layers and blocks inside the block."""
        blocks = {id(block) for row in rows_of_blocks(model) for block in row}
        with ExitStack() as stack:
            for name, module in model.named_modules():
                if id(module) in blocks:
                    stack.callback(self._watch_block(name, module))
                if is_layer(module):
                    stack.callback(self._watch_layer(name, module))
            yield

    def _watch_block(self, name: str, module: nn.Module) -> Callable[[], None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            del module
            leaves = tree_leaves((args, kwargs))
            crossing = {
                number: leaf for number, leaf in enumerate(leaves) if self.sources_of([leaf])
            }
            self._seen.blocks.append(
                BlockCall(
                    name=name,
                    arguments=tuple(crossing),
                    shapes=tuple(tuple(leaf.shape) for leaf in crossing.values()),
                    dtypes=tuple(leaf.dtype for leaf in crossing.values()),
                    gradients=tuple(leaf.requires_grad for leaf in crossing.values()),
                    flops_before=self._flops.get_total_flops(),
                )
            )

        return module.register_forward_pre_hook(enter, with_kwargs=True).remove

    def _watch_layer(self, name: str, module: nn.Module) -> Callable[[], None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            del module
            sources = self.sources_of((args, kwargs))
            self._seen.layers.append(LayerCall(name, sources, len(self._seen.blocks)))
            self._depth += 1

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._depth -= 1
            sources = self.sources_of((args, kwargs))
            self.mark(output, Sources([name]) if is_linear(module) or not sources else sources)

        before = module.register_forward_pre_hook(enter, with_kwargs=True)
        after = module.register_forward_hook(leave, with_kwargs=True)

        def remove() -> None:
            before.remove()
            after.remove()

        return remove


def scaled_shape(few: Sequence[int], more: Sequence[int], samples: int) -> tuple[int, ...]:
    """Extrapolate a tensor's shape to `samples`, from `few` at 2 samples and `more` at 3."""
    return tuple(at_2 + (samples - 2) * (at_3 - at_2) for at_2, at_3 in zip(few, more, strict=True))
