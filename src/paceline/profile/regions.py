"""A model's repeated blocks, and the region that a forward pass is in: before, in or after them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

BlockHook = Callable[[int, Any], None]
"""Called with the number of a block, and its inputs or outputs."""


def rows_of_blocks(model: nn.Module) -> list[list[nn.Module]]:
    """Return every ModuleList or Sequential of several modules of one class that have layers.

    Transformers and residual networks are written as such rows. FSDP shards, pipeline stages and
    recomputation take a block as their unit. A row inside a block of another row is part of that
    block.
    """
    rows: list[list[nn.Module]] = []
    inside: set[int] = set()
    for module in model.modules():  # outer modules first
        if id(module) in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        children = list(module.children())
        alike = len(children) > 1 and len({type(child) for child in children}) == 1
        if alike and any(True for _ in children[0].children()):  # bare layers are not blocks
            rows.append(children)
            inside |= {id(part) for child in children for part in child.modules()}
    return rows


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return all blocks of the model, row after row."""
    return [block for row in rows_of_blocks(model) for block in row]


def _nothing(number: int, values: Any) -> None:
    del number, values


class Regions:
    """The blocks of a model, numbered from 1; 0 is before them, and `last` after them.

    A model without blocks counts as one block. Layers between two blocks belong to the later one.
    """

    def __init__(self, model: nn.Module) -> None:
        self.blocks: list[nn.Module] = blocks(model) or [model]
        self.last = len(self.blocks) + 1
        self.now = 0

    @contextmanager
    def followed(self, entered: BlockHook = _nothing, left: BlockHook = _nothing) -> Iterator[None]:
        """Keep `now` up to date, and call the hooks with each block's inputs and outputs."""
        with ExitStack() as stack:
            for number, block in enumerate(self.blocks, 1):
                for hook in self._hooks(number, block, entered, left):
                    stack.callback(hook.remove)
            yield

    def _hooks(
        self, number: int, block: nn.Module, entered: BlockHook, left: BlockHook
    ) -> list[Any]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            del module
            self.now = number
            entered(number, (args, kwargs))

        def leave(module: nn.Module, args: Any, outputs: Any) -> None:
            del module, args
            left(number, outputs)
            self.now = min(number + 1, self.last)

        return [
            block.register_forward_pre_hook(enter, with_kwargs=True),
            block.register_forward_hook(leave),
        ]
