"""Pipeline stages cut at the edges of a model's blocks, each run by the user's own forward.

A stage calls the whole model, but only one span of it is active: from the entry of its first block
to the entry of the next stage's first block. Outside this span, blocks and layers are not computed
and return zeros that take no memory. The first block's arguments are the tensors received from the
previous stage. So the model is neither exported nor rewritten, and shards, tensor-parallel slices,
recomputation and dropout work inside a stage as in the whole model.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

from paceline.comm.torch_internals import tree_leaves, tree_map
from paceline.parallel.forward_trace import BlockCall, Trace, is_layer, scaled_shape
from paceline.parallel.parallel_model import aliases
from paceline.specs import PacelineError


@dataclass(frozen=True)
class Cut:
    """Where a model is cut, and which parameters each stage holds."""

    first_blocks: tuple[int, ...]
    """The index of each stage's first block; the first stage also runs everything before it."""
    blocks: int
    owners: dict[str, frozenset[int]]
    """The stages that use each parameter; more than one if a weight is shared."""
    few: tuple[BlockCall, ...]
    more: tuple[BlockCall, ...]
    """The calls of all blocks: `few` with 2 samples, `more` with 3."""

    def span(self, stage: int) -> range:
        """Return the blocks of a stage."""
        edges = (*self.first_blocks, self.blocks)
        return range(edges[stage], edges[stage + 1])

    def arguments(self, stage: int, samples: int) -> tuple[torch.Tensor, ...]:
        """Return a stage's inputs for this many samples, as meta tensors."""
        first = self.first_blocks[stage]
        if stage == 0:
            return ()
        few, more = self.few[first], self.more[first]
        return tuple(
            torch.empty(
                scaled_shape(at_2, at_3, samples),
                dtype=dtype,
                device="meta",
                requires_grad=gradient,
            )
            for at_2, at_3, dtype, gradient in zip(
                few.shapes, more.shapes, few.dtypes, few.gradients, strict=True
            )
        )


def cut(model: nn.Module, few: Trace, more: Trace, stages: int) -> Cut:
    """Cut a model into stages of nearly equal cost, from its traces."""
    names = [block.name for block in few.blocks]
    kind = type(model).__name__
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise PacelineError(
            f"{kind} calls its block {repeated} several times, so it cannot belong to one stage",
            fix="use --tensor or --shards instead of --pipeline",
        )
    if len(names) < stages:
        raise PacelineError(
            f"{stages} pipeline stages need as many blocks, but {kind} has {len(names)} in its"
            " nn.ModuleList or nn.Sequential",
            fix=f"use at most {max(1, len(names))} stages (an interleaved or zero-bubble schedule"
            " has two on every worker)",
        )
    edges = [0, *(block.flops_before for block in few.blocks[1:]), few.flops]
    # Add one to each cost, so that blocks without matrix products are divided by their number.
    costs = [after - before + 1 for before, after in pairwise(edges)]
    first_blocks = tuple(balanced(costs, stages))
    stage_of = [
        max(stage for stage, first in enumerate(first_blocks) if first <= block)
        for block in range(len(names))
    ]
    # A layer called between two blocks belongs to the stage of the first block.
    used = [
        (name, stage_of[max(0, call.after_block - 1)])
        for call in few.layers
        for name, _ in model.get_submodule(call.name).named_parameters(call.name, recurse=False)
    ] + [(name, stage_of[max(0, blocks - 1)]) for name, blocks in few.parameters]
    alias = aliases(model)
    owners: dict[str, set[int]] = {}
    for name, stage in used:
        owners.setdefault(alias[name], set()).add(stage)
    return Cut(
        first_blocks=first_blocks,
        blocks=len(names),
        owners={name: frozenset(owners.get(name, {0})) for name, _ in model.named_parameters()},
        few=tuple(few.blocks),
        more=tuple(more.blocks),
    )


def balanced(costs: Sequence[int], parts: int) -> list[int]:
    """Return the first index of each of `parts` nonempty spans, with the smallest maximum cost."""
    sums = [0, *accumulate(costs)]
    # best[end]: the smallest maximum over spans of the first `end` costs, and their first indices.
    best = {end: (sums[end], [0]) for end in range(1, len(sums))}
    for part in range(2, parts + 1):
        best = {
            end: min(
                (max(best[begin][0], sums[end] - sums[begin]), [*best[begin][1], begin])
                for begin in range(part - 1, end)
            )
            for end in range(part, len(sums))
        }
    return best[len(costs)][1]


class Stage(nn.Module):
    """A span of a model, called with the tensors from the previous stage."""

    def __init__(self, model: nn.Module, blocks: Sequence[BlockCall]) -> None:
        super().__init__()
        self.model = model
        self._blocks = blocks
        self._span = range(len(blocks))
        self._forms: dict[Any, Any] = {}
        self._alive = False
        self._gradients = False
        self._received: tuple[torch.Tensor, ...] = ()
        self._sent: tuple[torch.Tensor, ...] = ()
        self._replaced: dict[int, tuple[Any, torch.Tensor]] = {}
        self.work: Callable[[nn.Module, bool], Any] = _no_work
        """Call the model on the next micro-batch. The second argument says whether this is the last
        stage; if so, the pipeline returns the result."""
        self._watch_calls()

    def hold(self, span: range) -> None:
        """Activate these blocks and the layers called between them."""
        self._span = span

    @property
    def is_last(self) -> bool:
        """Whether this stage returns the model's output."""
        return self._span.stop == len(self._blocks)

    def forward(self, *received: torch.Tensor) -> Any:
        """Return the next stage's inputs or, on the last stage, the result of `work`."""
        self._received, self._sent, self._replaced = received, (), {}
        self._gradients = torch.is_grad_enabled()
        self._alive = self._span.start == 0
        with torch.set_grad_enabled(self._gradients and self._alive):
            output = self.work(self.model, self.is_last)
        sent = self._sent
        # They lead to the graph of all stages before, and so to weights that a worker lets go.
        self._received, self._sent, self._replaced = (), (), {}
        return output if self.is_last else sent

    def _watch_calls(self) -> None:
        numbers = {block.name: number for number, block in enumerate(self._blocks)}
        inside = tuple(f"{name}." for name in numbers)
        for name, module in self.model.named_modules():
            if name in numbers:
                module.forward = functools.partial(
                    self._block_called, numbers[name], name, module.forward
                )
            elif not name.startswith(inside) and is_layer(module):
                module.forward = functools.partial(self._layer_called, name, module.forward)

    def _block_called(self, number: int, name: str, forward: Any, *args: Any, **named: Any) -> Any:
        if number == self._span.start and number > 0:
            self._enter(number, (args, named))
        elif number == self._span.stop:
            self._leave(number, (args, named))
        if self._alive and self._replaced:
            args, named = tree_map(self._live_value, (args, named))
        return self._layer_called(name, forward, *args, **named)

    def _layer_called(self, name: str, forward: Any, *args: Any, **named: Any) -> Any:
        if self._alive:
            return forward(*args, **named)
        leaves = tree_leaves((args, named))
        key = (name, *(leaf.shape for leaf in leaves if isinstance(leaf, torch.Tensor)))
        if key not in self._forms:
            self._forms[key] = forward(*args, **named)
            self._forms[key] = tree_map(_empty_form, self._forms[key])
        return tree_map(_another, self._forms[key])

    def _enter(self, number: int, arguments: Any) -> None:
        leaves = tree_leaves(arguments)
        for position, tensor in zip(self._blocks[number].arguments, self._received, strict=True):
            # Kept by identity: the user's code may also pass the same value to later blocks.
            self._replaced[id(leaves[position])] = (leaves[position], tensor)
        self._alive = True
        torch.set_grad_enabled(self._gradients)

    def _leave(self, number: int, arguments: Any) -> None:
        leaves = [self._live_value(leaf) for leaf in tree_leaves(arguments)]
        self._sent = tuple(leaves[position] for position in self._blocks[number].arguments)
        self._alive = False
        torch.set_grad_enabled(False)

    def _live_value(self, leaf: Any) -> Any:
        return self._replaced[id(leaf)][1] if id(leaf) in self._replaced else leaf


def _no_work(model: nn.Module, is_last: bool) -> Any:
    raise NotImplementedError


def _empty_form(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.zeros((), dtype=leaf.dtype, device=leaf.device).expand(leaf.shape)


def _another(leaf: Any) -> Any:
    """Return a new tensor on the same memory, so that its identity distinguishes each value."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def let_go(model: nn.Module, names: Iterable[str]) -> None:
    """Replace the parameters of other stages with zeros that take no memory."""
    alias, gone = aliases(model), frozenset(names)
    for name, first in alias.items():
        if first in gone:
            module_name, _, attribute = name.rpartition(".")
            module = model.get_submodule(module_name)
            form = _empty_form(getattr(module, attribute).detach())
            delattr(module, attribute)
            setattr(module, attribute, form)
