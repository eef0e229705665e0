"""Call the user's model and loss in the same way in training and in evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from paceline.comm.dtensor import full_tensor
from paceline.specs import PacelineError


def call(model: Callable[..., Any], inputs: Any) -> Any:
    """Call `model(x)`, `model(*x)` or `model(**x)`, depending on the type of the inputs."""
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, list | tuple):
        return model(*inputs)
    return model(inputs)


def checked_loss(loss: Any) -> torch.Tensor:
    """Return the loss; raise an error if it is not a scalar."""
    if isinstance(loss, torch.Tensor) and loss.ndim == 0:
        return full_tensor(loss)
    form = (
        f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
    )
    raise PacelineError(
        f"loss(output, target) returned {form}, not a scalar tensor",
        fix="return the mean over the samples of the batch, such as F.cross_entropy does",
    )


def refuse_constant(loss: torch.Tensor) -> None:
    """Raise an error if no gradient flows from the loss."""
    if not loss.requires_grad:
        raise PacelineError(
            "the loss does not depend on any trainable parameter",
            fix="return it without detach(), .item() or torch.no_grad(), and let at least one"
            " parameter require gradients",
        )
