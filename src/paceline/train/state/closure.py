"""The closure of an optimizer that evaluates the loss several times per step: SAM, L-BFGS."""

import copy
from collections.abc import Callable, Sequence

import torch

from paceline.comm.groups import Groups
from paceline.parallel.gradient_norm import clip
from paceline.parallel.parallel_model import ParallelModel
from paceline.train.gradients.accumulation import BatchLoss
from paceline.train.state.updates import Update


class Closure:
    """Computes the gradient of the global batch's mean loss at the current weights.

    It returns the mean loss over the global batch, equal on all workers, so that line searches
    decide alike. Each evaluation draws the same random numbers.
    """

    def __init__(
        self,
        learn: Callable[[], BatchLoss],
        parallel_model: ParallelModel,
        groups: Groups,
        largest_norm: float | None,
    ) -> None:
        self._learn, self._parallel_model, self._groups = learn, parallel_model, groups
        self._largest_norm = largest_norm
        self.first: BatchLoss | None = None
        """The loss of the first evaluation, at the weights before the update."""

    def __call__(self) -> torch.Tensor:
        """Evaluate the loss and its gradient."""
        for parameter in self._parallel_model.parameters():
            parameter.grad = None
        with torch.enable_grad():
            learned = self._learn()
        self.first = self.first or learned
        if self._largest_norm is not None:
            clip(self._parallel_model, self._largest_norm)
        weight = torch.as_tensor(
            learned.weights, dtype=learned.loss.dtype, device=learned.loss.device
        )
        # A local batch of weight 0 must add nothing, whatever the loss of its padding sample is.
        weighted = torch.where(weight > 0, learned.loss * weight, 0.0)
        total = self._groups.sum(torch.stack([weighted, weight]))
        return total[0] / total[1]


class ClosureUpdates:
    """Updates whose optimizer evaluates the loss itself, as often as it needs."""

    def __init__(self, parallel_model: ParallelModel, groups: Groups) -> None:
        self._parallel_model, self._groups = parallel_model, groups
        self._before: _WeightsBefore | None = None

    def take(self, update: Update, learn: Callable[[], BatchLoss], *, undoable: bool) -> BatchLoss:
        """Update the weights, and return the loss before; if `undoable`, keep them meanwhile."""
        closure = Closure(learn, self._parallel_model, self._groups, update.clip)
        if undoable:
            self._before = _WeightsBefore([each.optimizer for each in update.with_wrapped()])
        closure()  # SAM expects the gradient at the current weights
        update.optimizer.step(closure)  # type: ignore[arg-type] # torch expects a float
        self._groups.health.begin_update(self._groups.device)  # while it can be undone
        self._groups.health.end_update(self._groups.device)
        update.optimizer.zero_grad()
        if update.schedule is not None:
            update.schedule.step()
        self._before = None
        assert closure.first is not None
        return closure.first

    def undo(self) -> None:
        """Undo an update that was interrupted."""
        if self._before is not None:
            self._before.restore()
            self._before = None


class _WeightsBefore:
    """Weights and optimizer state before an update that changes them between its evaluations."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._parameters = [
            each for group in optimizers[-1].param_groups for each in group["params"]
        ]
        self._weights = [each.detach().clone() for each in self._parameters]
        self._states = [(each, copy.deepcopy(each.state_dict())) for each in optimizers]

    @torch.no_grad()
    def restore(self) -> None:
        """Undo the update."""
        for parameter, weight in zip(self._parameters, self._weights, strict=True):
            parameter.copy_(weight)
        for optimizer, state in self._states:
            optimizer.load_state_dict(state)
