"""Gradients that are looked at one by one, and never in memory together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn


@contextmanager
def taken_gradients(
    model: nn.Module, take: Callable[[str, torch.Tensor], object]
) -> Iterator[None]:
    """Pass each gradient of the block's backward to `take(name, gradient)`, and free it."""

    def taking(name: str) -> Callable[[torch.Tensor], None]:
        def take_gradient(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            take(name, parameter.grad)
            parameter.grad = None

        return take_gradient

    with ExitStack() as stack:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(taking(name))  # type: ignore[no-untyped-call]
                stack.callback(hook.remove)
        yield
