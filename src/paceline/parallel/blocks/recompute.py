"""Activation checkpointing: blocks that save less and recompute it in backward."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from paceline.comm.torch_internals import CPU_ATTENTION, EFFICIENT_ATTENTION, FLASH_ATTENTION
from paceline.profile.regions import blocks
from paceline.specs import Layout, PacelineError

_aten = torch.ops.aten
_KEPT = (
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    FLASH_ATTENTION.default,
    EFFICIENT_ATTENTION.default,
    CPU_ATTENTION.default,
)
"""Operators that are expensive to compute and cheap to save."""


ContextPair = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
"""Context managers around a block's forward and around its recomputation."""


def recompute(model: nn.Module, layout: Layout, again: Callable[[], ContextPair]) -> None:
    """Enable the layout's recomputation in a model's blocks, in place.

    `again` returns the contexts for a block whose backward runs outside its forward's contexts.
    """
    if layout.recompute == "none":
        return
    found = blocks(model)
    if not found:
        raise PacelineError(
            f"recompute={layout.recompute!r} needs blocks, but {type(model).__name__} has no"
            " nn.ModuleList or nn.Sequential of several blocks of one class",
            fix="keep the repeated layers in an nn.ModuleList, or leave recompute out",
        )
    selective = functools.partial(create_selective_checkpoint_contexts, _policy)
    options: dict[str, Any] = {"use_reentrant": False}
    if layout.pipeline > 1 and layout.recompute == "selective":
        options["context_fn"] = functools.partial(_both, selective, again)
    elif layout.pipeline > 1:
        options["context_fn"] = again
    elif layout.recompute == "selective":
        options["context_fn"] = selective
    for block in found:
        # Wrap the bound method, so that parameter names and module hooks stay unchanged.
        block.forward = functools.partial(checkpoint, block.forward, **options)


def _both(outer: Callable[[], ContextPair], inner: Callable[[], ContextPair]) -> ContextPair:
    (outer_forward, outer_again), (inner_forward, inner_again) = outer(), inner()
    return _nested(outer_forward, inner_forward), _nested(outer_again, inner_again)


@contextmanager
def _nested(
    outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]
) -> Iterator[None]:
    with outer, inner:
        yield


def _policy(context: Any, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    del context, arguments, options
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
