"""Check before training that a model under a layout computes the same as the plain model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from paceline.parallel.step.taken_gradients import taken_gradients
from paceline.specs import PacelineError
from paceline.specs.units import first_few

_TOLERANCE = 1e-3
"""Far above fp32 rounding, far below the error of a wrong gradient."""


PartOf = Callable[[str, torch.Tensor], torch.Tensor | None]
"""Map a parameter's name and full gradient to the part of this worker; None if it has none."""


@dataclass(frozen=True)
class Reference:
    """The loss of a few samples and this worker's part of its gradients, from the plain model."""

    loss: float
    gradients: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: nn.Module, loss: Callable[[], torch.Tensor], part_of: PartOf) -> "Reference":
        """Compute the loss and gradients; of each gradient, only this worker's part is kept."""
        gradients: dict[str, torch.Tensor] = {}

        def keep(name: str, gradient: torch.Tensor) -> None:
            part = part_of(name, gradient)
            if part is not None:
                gradients[name] = part.clone()  # a view would keep the whole

        return cls(_backward(model, loss, keep).item(), gradients)

    def differences(self, model: nn.Module, loss: Callable[[], torch.Tensor]) -> list[str]:
        """Return what differs in the same model under a layout: the loss, names of parameters."""
        missing, wrong = set(self.gradients), set[str]()

        def compare(name: str, gradient: torch.Tensor) -> None:
            if name in missing:
                missing.discard(name)
                if not _close(gradient, self.gradients[name]):
                    wrong.add(name)

        value = _backward(model, loss, compare)
        differ = [] if _close(value, torch.tensor(self.loss)) else ["the loss"]
        return differ + [
            f"the gradient of {name}" for name in self.gradients if name in wrong | missing
        ]


def refuse_layout(model: nn.Module, differ: Sequence[str], how: str) -> None:
    """Reject an arrangement whose loss or gradients differ from the plain model's."""
    raise PacelineError(
        f"{type(model).__name__} computes different results when it is {how}:"
        f" {first_few(differ)} differ from the whole model's on two samples",
        fix="use --shards, which works with any model; or look in its forward for values"
        " that reach these other than through arguments of blocks and layers",
    )


def _backward(
    model: nn.Module,
    loss: Callable[[], torch.Tensor],
    take: Callable[[str, torch.Tensor], None],
) -> torch.Tensor:
    """Return the loss; pass each gradient on and free it, so that never all are in memory."""
    with taken_gradients(model, take):
        value = loss()
        torch.autograd.backward(value)
    return value.detach()


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    expected = expected.to(found.device, torch.float32)
    size = expected.norm().item()
    return bool((found.float() - expected).norm().item() <= _TOLERANCE * size + 1e-6)
