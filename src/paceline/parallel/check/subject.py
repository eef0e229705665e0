"""The model under check: losses and gradients, each from the same weights, buffers and seed."""

import torch
from torch import nn

from paceline.comm.torch_internals import BatchNormLayer
from paceline.data.loader import Batch
from paceline.parallel.step.full_precision import full_precision
from paceline.parallel.step.model_calls import call, checked_loss, refuse_constant
from paceline.user.mistakes import users_code
from paceline.user.phase import Phase
from paceline.user.training import Training

_TOLERANCE = 1e-3
_LOW_PRECISION_TOLERANCE = 5e-2
"""For weights in fewer than 32 bits."""
_DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)


class Subject:
    """A training's model, in training mode but for dropout and batch normalization.

    Dropout draws other random numbers for each part of a batch, and batch normalization has rules
    of its own (`--batch-norm`): both would hide other differences.
    """

    def __init__(self, training: Training, model: nn.Module, phase: Phase | None = None) -> None:
        self.training, self.model, self._phase = training, model, phase
        self._buffers = {name: each.detach().clone() for name, each in model.named_buffers()}
        narrow = any(each.dtype.itemsize < 4 for each in model.parameters())
        self.tolerance = _LOW_PRECISION_TOLERANCE if narrow else _TOLERANCE
        model.train()
        for module in model.modules():
            if isinstance(module, (*_DROPOUTS, BatchNormLayer)):
                module.eval()

    @property
    def batch_norms(self) -> dict[str, BatchNormLayer]:
        """The batch-normalization layers by name."""
        named = self.model.named_modules()
        return {name: each for name, each in named if isinstance(each, BatchNormLayer)}

    @property
    def has_dropout(self) -> bool:
        """Whether the model has dropout layers, which are off."""
        return any(isinstance(module, _DROPOUTS) for module in self.model.modules())

    @full_precision()
    def loss(self, batch: Batch, seed: int = 0) -> torch.Tensor:
        """Return a batch's loss, from the model's first buffers."""
        self._restore_buffers()
        torch.manual_seed(seed)
        loss = self._loss(batch) if self._phase is None else self._loss_of_phase(batch, self._phase)
        refuse_constant(loss)
        return loss

    def _loss(self, batch: Batch) -> torch.Tensor:
        with users_code("the model's forward", "check that the model accepts the dataset's inputs"):
            output = call(self.model, batch.inputs)
        with users_code(
            "the loss", "check that the loss accepts the model's output and the dataset's target"
        ):
            return checked_loss(self.training.loss(output, batch.target))

    def _loss_of_phase(self, batch: Batch, phase: Phase) -> torch.Tensor:
        with users_code("the phase's loss", "check that it accepts the dataset's inputs"):
            return checked_loss(phase.loss(self.model, batch.inputs, batch.target))

    def value(self, batch: Batch, seed: int = 0) -> float:
        """Return a batch's loss as a number."""
        return self.loss(batch, seed).item()

    @full_precision()
    def add_gradient(self, loss: torch.Tensor, times: float | torch.Tensor = 1.0) -> None:
        """Add `times` the gradient of a loss to the parameters' gradients."""
        with users_code("the backward pass", "check the operations between model and loss"):
            torch.autograd.backward(loss * times)

    def gradient_norms(self) -> dict[str, float]:
        """Return the norm of every parameter's gradient."""
        return {
            name: parameter.grad.norm().item()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }

    def unused(self) -> list[str]:
        """Return the trainable parameters without a gradient."""
        return [
            name
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
            and parameter.grad is None
            and (self._phase is None or self._phase.trains(name))
        ]

    def changed_buffers(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the buffers that a batch's forward changes, with their new values.

        A buffer that changes its shape is a cache, and no part of what the model has learned.
        """
        self.value(batch)
        now = {name: each.detach().clone() for name, each in self.model.named_buffers()}
        return {
            name: each
            for name, each in now.items()
            if name in self._buffers
            and each.shape == self._buffers[name].shape
            and not torch.equal(each, self._buffers[name])
        }

    def agree(self, one: float, other: float) -> bool:
        """Whether two losses are equal but for rounding."""
        return abs(one - other) <= self.tolerance * max(abs(one), abs(other), 1e-6)

    @torch.no_grad()
    def _restore_buffers(self) -> None:
        for name, buffer in self.model.named_buffers():
            before = self._buffers.get(name)
            if before is not None and before.shape == buffer.shape:
                buffer.copy_(before)
