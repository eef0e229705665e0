"""Where a forward is: before the blocks of a model, in one of them, or after them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from paceline.profile.blocks import blocks

Told = Callable[[int, Any], None]
"""Told the number of a block, and what it gets or returns."""


def _nothing(number: int, values: Any) -> None:
    del number, values


class Regions:
    """The blocks of a model, numbered from 1; 0 is before them, and `last` after them.

    A model that has no blocks is one block. What lies between two blocks belongs to the later one.
    """

    def __init__(self, model: nn.Module) -> None:
        self.blocks: list[nn.Module] = blocks(model) or [model]
        self.last = len(self.blocks) + 1
        self.now = 0

    @contextmanager
    def followed(self, entered: Told = _nothing, left: Told = _nothing) -> Iterator[None]:
        """A block in which `now` follows the model, and blocks say with what they are entered and
        left."""
        with ExitStack() as stack:
            for number, block in enumerate(self.blocks, 1):
                for hook in self._hooks(number, block, entered, left):
                    stack.callback(hook.remove)
            yield

    def _hooks(self, number: int, block: nn.Module, entered: Told, left: Told) -> list[Any]:
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
