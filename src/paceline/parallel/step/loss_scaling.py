"""Loss scaling for fp16, where small gradients would underflow otherwise."""

import torch

from paceline.comm.groups import Groups
from paceline.comm.torch_internals import found_inf, scale_tensors, step_unless
from paceline.specs import Layout


class LossScaling:
    """PyTorch's GradScaler with overflows shared by all workers; a no-op in other precisions."""

    def __init__(self, layout: Layout, groups: Groups, *, replicas_differ: bool = False) -> None:
        self._device = device = groups.device
        self._sum = groups.sum_in_replica if replicas_differ else groups.sum
        self._enabled = layout.precision == "fp16"
        # Replicas and shards have summed their gradients, so all see an overflow of one;
        # tensor-parallel slices and pipeline stages have separate gradients.
        self._ask = layout.tensor * layout.pipeline > 1
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._enabled)
        # The scale exists only after a first call, and not every stage computes a loss.
        self._scaler.scale(torch.zeros((), device=device))

    def state(self) -> dict[str, float]:
        """Return the state for a checkpoint."""
        return dict(self._scaler.state_dict())

    def restore(self, state: dict[str, float]) -> None:
        """Restore the state from a checkpoint."""
        if state and self._enabled:
            self._scaler.load_state_dict(state)

    @property
    def scale(self) -> float:
        """The current loss scale."""
        return self._scaler.get_scale()

    @property
    def factor(self) -> float | torch.Tensor:
        """The same, unread: on an accelerator, `scale` waits for it."""
        return self.scaled(torch.ones((), device=self._device)) if self._enabled else 1.0

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss, for backward."""
        return self._scaler.scale(loss) if self._enabled else loss

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Unscale the gradients and record whether one overflowed."""
        if not self._enabled:
            return
        self._scaler.unscale_(optimizer)
        if self._ask:
            for found in found_inf(self._scaler, optimizer):
                self._sum(found).clamp_(max=1.0)  # fused optimizers subtract it from their steps

    def step(self, optimizer: torch.optim.Optimizer, unless: torch.Tensor | None = None) -> None:
        """Update the weights, unless a gradient overflowed, or `unless` is 1 on the device."""
        if self._enabled and unless is not None:
            scale = scale_tensors(self._scaler)
            before = [each.clone() for each in scale]
            for found in found_inf(self._scaler, optimizer):
                torch.maximum(found, unless, out=found)
            self._step_and_scale(optimizer)
            for now, was in zip(scale, before, strict=True):  # it was no overflow
                now.copy_(torch.where(unless > 0, was, now))
        elif self._enabled:
            self._step_and_scale(optimizer)
        elif unless is not None:
            step_unless(unless, optimizer)
        else:
            optimizer.step()

    def _step_and_scale(self, optimizer: torch.optim.Optimizer) -> None:
        self._scaler.step(optimizer)
        self._scaler.update()
