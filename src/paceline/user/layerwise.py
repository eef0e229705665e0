"""Optimizers that adapt the learning rate to each layer: LARS and LAMB, in any layout.

Both need norms of whole weights. Where a layout divides a weight, each worker has the norm of its
part, and `sum_parts`, which the trainer sets, adds their squares up: one sum per step, and the host
waits for nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.torch_internals import (
    foreach_add_,
    foreach_addcmul_,
    foreach_div,
    foreach_div_,
    foreach_lerp_,
    foreach_mul_,
    foreach_norm,
    foreach_sqrt_,
    foreach_sub_,
)

SumParts: TypeAlias = Callable[[Sequence[nn.Parameter], torch.Tensor], torch.Tensor]
"""Map parameters and squared norms of this worker's parts of them, in columns, to those of the
whole parameters. All workers that hold parts call it together."""

Given: TypeAlias = "Iterable[torch.Tensor] | Iterable[dict[str, Any]]"
"""Parameters, or groups of them, as torch's optimizers take them."""


class LayerwiseOptimizer(torch.optim.Optimizer):
    """Base of optimizers whose update of a weight depends on norms of the whole weight.

    Biases and normalizations, which are parameters of fewer than two dimensions, get neither
    adaptation nor weight decay.
    """

    sum_parts: SumParts | None = None
    """Set where a layout divides parameters; None: each is whole."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the weights; return what `closure` does, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._update()
        return loss

    def _update(self) -> None:
        raise NotImplementedError

    def _learning(self) -> Iterator[tuple[dict[str, Any], list[nn.Parameter]]]:
        """Yield groups with their parameters that have a gradient, adapted and others apart."""
        for group in self.param_groups:
            learning = [each for each in group["params"] if each.grad is not None]
            adapted = [each for each in learning if is_adapted(each)]
            others = [each for each in learning if not is_adapted(each)]
            if adapted:
                yield group, adapted
            if others:
                yield group | {"weight_decay": 0.0}, others

    def _norms(
        self, tensors: dict[nn.Parameter, torch.Tensor]
    ) -> dict[nn.Parameter, tuple[torch.Tensor, torch.Tensor]]:
        """Return norms of each adapted parameter and of its tensor, whole in every layout."""
        # Also those without a gradient, so that all workers sum the same columns.
        adapted = [each for group in self.param_groups for each in group["params"]]
        adapted = [each for each in adapted if is_adapted(each)]
        if not adapted:
            return {}
        zero = torch.zeros((), device=adapted[0].device)
        local = [*_locals(adapted), *(tensors.get(each, zero) for each in adapted)]
        exact = reduce(torch.promote_types, {each.dtype for each in local}, torch.float32)
        norms = torch.stack(foreach_norm(local, 2, exact)).view(2, -1)
        if self.sum_parts is not None:
            norms = self.sum_parts(adapted, norms.square()).sqrt()
        return dict(zip(adapted, zip(*norms.unbind(), strict=True), strict=True))


class LARS(LayerwiseOptimizer):
    """SGD with momentum whose rate is adapted to each layer.

    You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017, algorithm 1:
    the rate of a layer is `lr` x `trust` x |w| / (|g| + `weight_decay` x |w|). Biases and
    normalizations are left out as in Jia et al., Highly scalable deep learning training system
    with mixed-precision, 2018, and MLPerf's ResNet.
    """

    def __init__(
        self,
        params: Given,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, settings)

    def _update(self) -> None:
        norms = self._norms(
            {
                each: local_tensor(each.grad)
                for _, parameters in self._learning()
                for each in parameters
                if each.grad is not None
            }
        )
        for group, parameters in self._learning():
            weights, gradients = _locals(parameters), _gradients(parameters)
            momenta = _locals([self._momentum(each) for each in parameters])
            steps = [each.clone() for each in gradients]
            if group["weight_decay"]:
                foreach_add_(steps, weights, alpha=group["weight_decay"])
            if parameters[0] in norms:
                foreach_mul_(steps, [_rate(*norms[each], group) for each in parameters])
            foreach_mul_(momenta, group["momentum"])
            foreach_add_(momenta, steps, alpha=group["lr"])
            foreach_sub_(weights, momenta)

    def _momentum(self, parameter: nn.Parameter) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: torch.Tensor = state["momentum"]
        return momentum


def _rate(weight: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    found: torch.Tensor = group["trust"] * weight / (gradient + group["weight_decay"] * weight)
    return found.where((weight > 0) & (gradient > 0), 1.0)


class LAMB(LayerwiseOptimizer):
    """Adam whose update is scaled to the norm of each layer's weight.

    You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2019,
    algorithm 2, with its identity for phi. Biases and normalizations are left out as in the
    authors' BERT training.
    """

    def __init__(
        self,
        params: Given,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings)

    def _update(self) -> None:
        learning = list(self._learning())
        updates = [self._updates(group, parameters) for group, parameters in learning]
        norms = self._norms(
            {
                each: update
                for (_, parameters), of in zip(learning, updates, strict=True)
                for each, update in zip(parameters, of, strict=True)
            }
        )
        for (group, parameters), of in zip(learning, updates, strict=True):
            if parameters[0] in norms:
                foreach_mul_(of, [_ratio(*norms[each]) for each in parameters])
            foreach_add_(_locals(parameters), of, alpha=-group["lr"])

    def _updates(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """Return Adam's updates of one group, with weight decay, without the rate."""
        gradients, states = _gradients(parameters), [self._state(each) for each in parameters]
        (beta1, beta2), steps = group["betas"], [each["step"] for each in states]
        means = _locals([each["mean"] for each in states])
        squares = _locals([each["square"] for each in states])
        foreach_lerp_(means, gradients, 1 - beta1)
        foreach_mul_(squares, beta2)
        foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = foreach_div(squares, [1 - beta2**step for step in steps])
        foreach_sqrt_(roots)
        foreach_add_(roots, group["eps"])
        updates = foreach_div(means, [1 - beta1**step for step in steps])
        foreach_div_(updates, roots)
        if group["weight_decay"]:
            foreach_add_(updates, _locals(parameters), alpha=group["weight_decay"])
        return list(updates)

    def _state(self, parameter: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = (torch.zeros_like(parameter) for _ in range(2))
        state["step"] += 1
        return state


def _ratio(weight: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    return (weight / update).where((weight > 0) & (update > 0), 1.0)


def is_adapted(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is neither a bias nor of a normalization."""
    return parameter.ndim > 1


def _locals(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [local_tensor(each).detach() for each in tensors]


def _gradients(parameters: Iterable[nn.Parameter]) -> list[torch.Tensor]:
    return [local_tensor(each.grad) for each in parameters if each.grad is not None]
