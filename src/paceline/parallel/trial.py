"""Check before training that a model under a layout computes the same as the plain model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from paceline.specs import PacelineError
from paceline.specs.units import first_few

_TOLERANCE = 1e-3
"""Far above fp32 rounding, far below the error of a wrong gradient."""


@dataclass(frozen=True)
class Reference:
    """The loss of a few samples and its gradients, from the model as the user wrote it."""

    loss: float
    gradients: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: nn.Module, loss: Callable[[], torch.Tensor]) -> "Reference":
        """Compute the loss and gradients; clear the model's gradients afterwards."""
        value = loss()
        torch.autograd.backward(value)
        return cls(value.item(), dict(_taken_gradients(model)))

    def check(
        self,
        model: nn.Module,
        loss: Callable[[], torch.Tensor],
        part_of: Callable[[str, torch.Tensor], torch.Tensor],
        how: str,
    ) -> None:
        """Reject an arrangement whose loss or gradients differ from these.

        `part_of` cuts this worker's part from a full gradient.
        """
        value = loss()
        torch.autograd.backward(value)
        found = dict(_taken_gradients(model))
        wrong = [] if _close(value.detach(), torch.tensor(self.loss)) else ["the loss"]
        for name, expected in self.gradients.items():
            part = part_of(name, expected)
            if name not in found or not _close(found[name], part):
                wrong.append(f"the gradient of {name}")
        if wrong:
            raise PacelineError(
                f"{type(model).__name__} computes different results when it is {how}:"
                f" {first_few(wrong)} differ from the whole model's on two samples",
                fix="use --shards, which works with any model; or look in its forward for values"
                " that reach these other than through arguments of blocks and layers",
            )


def _taken_gradients(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield name, parameter.grad
            parameter.grad = None


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    expected = expected.to(found.device, torch.float32)
    size = expected.norm().item()
    return bool((found.float() - expected).norm().item() <= _TOLERANCE * size + 1e-6)
