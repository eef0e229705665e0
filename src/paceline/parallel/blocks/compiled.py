"""Compilation by torch.compile, one block at a time."""

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from paceline.profile.regions import blocks


def compile_blocks(model: nn.Module) -> None:
    """Compile each block of a model in place, or the whole model if it has no blocks.

    Equal blocks share one compiled graph, so compiling takes the time of one block. Between blocks,
    FSDP2 gathers weights, and the gradients of a block are ready for DDP when its backward ends,
    not when that of the whole model does.
    """
    for module in blocks(model) or [model]:
        module.forward = functools.partial(_forward, module.forward)
        module.compile()


def _forward(forward: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a module's forward. A compiler starts here: it silently leaves out calls that start in
    torch's own files, such as those of `nn.Sequential` and `nn.TransformerEncoderLayer`."""
    return forward(*arguments, **named)
