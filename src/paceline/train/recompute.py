"""Trading computation for memory: blocks that keep less and compute it again in backward."""

import functools
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from paceline.specs import Layout, PacelineError
from paceline.train.blocks import blocks

_aten = torch.ops.aten
_KEPT = (
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
)
"""What costs much to compute and little to keep."""


def recompute(model: nn.Module, layout: Layout) -> None:
    """Make the blocks of a model compute again what the layout says, in place."""
    if layout.recompute == "none":
        return
    found = blocks(model)
    if not found:
        raise PacelineError(
            f"recompute={layout.recompute!r} needs blocks, but {type(model).__name__} has no"
            " nn.ModuleList or nn.Sequential of several blocks of one class",
            fix="keep the repeated layers in an nn.ModuleList, or leave recompute out",
        )
    options: dict[str, Any] = {"use_reentrant": False}
    if layout.recompute == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
    for block in found:
        # The bound method, so that names of parameters and hooks of the module stay as they are.
        block.forward = functools.partial(checkpoint, block.forward, **options)


def _policy(context: Any, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    del context, arguments, options
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
