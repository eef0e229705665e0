"""Check before training that an optimizer updates divided parameters as it updates whole ones.

Most optimizers treat each element of a parameter alone, so that it can lie on any worker. Others
need rows, columns or norms of the whole parameter. Under shards, torch's DTensor computes these
over all workers, or fails. A tensor-parallel slice looks like a whole parameter to an optimizer,
and its update would silently differ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.specs import Layout, PacelineError
from paceline.user.parameters import Parameters

ELEMENTWISE = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "NAdam", "RAdam")
"""Some of torch's optimizers that any layout can divide."""

_STEPS = 3
_WIDTH = 4
_TOLERANCE = 0.02
"""Relative to the change of the weights: Muon computes in bf16. A wrong update is far off."""

Divide = Callable[[torch.Tensor], torch.Tensor]
"""Return this worker's part of a whole tensor."""


@dataclass(frozen=True)
class OptimizerTrial:
    """A few steps of an optimizer on small parameters, whole and divided as the layout does it."""

    build: Callable[[Parameters], torch.optim.Optimizer]
    closure: bool
    """Whether its step takes a closure."""

    def check(
        self, named: Sequence[tuple[str, nn.Parameter]], layout: Layout, groups: Groups
    ) -> None:
        """Raise if the optimizer gives other weights when the layout divides its parameters.

        The trial's parameters have names and numbers of dimensions of those given. All workers call
        this together.
        """
        if layout.shards * layout.tensor == 1:
            return
        rows = 2 * layout.shards * layout.tensor + 1  # shards of unequal size
        kinds = {each.ndim: name for name, each in named if each.ndim}
        whole = {
            name: _numbers((rows, *[_WIDTH] * (ndim - 1)), groups.device, _STEPS)
            for ndim, name in kinds.items()
        }
        with torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            try:
                optimizer, expected = self._trained(whole, lambda each: each)
            except Exception:  # the user's function may accept only the model's own parameters
                return
            if not torch.equal(before, torch.random.get_rng_state()):
                return  # random updates differ by nature
            for how, divide in _divisions(layout, groups):
                why = self._difference(whole, expected, divide)
                wrong = torch.tensor(float(why is not None), device=groups.device)
                if float(groups.sum(wrong)):
                    raise PacelineError(
                        f"{type(optimizer).__name__} was given together with {how}: {why}",
                        fix="use an optimizer that treats each element of a parameter alone, such"
                        f" as {', '.join(ELEMENTWISE)}, or replicas only",
                    )

    def _difference(
        self, whole: dict[str, torch.Tensor], expected: list[torch.Tensor], divide: Divide
    ) -> str | None:
        try:
            _, found = self._trained(whole, divide)
        except Exception as error:  # whatever the optimizer's own code raises
            said = (str(error).strip().splitlines() or [""])[0]
            return f"its step fails with {type(error).__name__}: {said}"
        for initial, one, each in zip(whole.values(), expected, found, strict=True):
            change = local_tensor(divide(one - initial))
            difference = local_tensor(each) - local_tensor(divide(one))
            if difference.norm() > _TOLERANCE * change.norm():
                return "its weights would differ from those of one worker"
        return None

    def _trained(
        self, whole: dict[str, torch.Tensor], divide: Divide
    ) -> tuple[torch.optim.Optimizer, list[torch.Tensor]]:
        named = {name: nn.Parameter(divide(each.clone())) for name, each in whole.items()}
        parameters = list(named.values())
        optimizer: Any = self.build(Parameters(named.items()))
        for step in range(_STEPS):
            gradients = [
                divide(_numbers(tuple(each.shape), each.device, step)) for each in whole.values()
            ]

            def evaluate(gradients: list[torch.Tensor] = gradients) -> torch.Tensor:
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                return torch.zeros(())

            evaluate()
            optimizer.step(*([evaluate] if self.closure else []))
        return optimizer, [each.detach() for each in parameters]


def _numbers(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    """Return random numbers, the same on every worker."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _divisions(layout: Layout, groups: Groups) -> Iterator[tuple[str, Divide]]:
    if layout.tensor > 1:
        how, half = f"tensor={layout.tensor}", _WIDTH // 2
        yield how, lambda each: each[: len(each) // layout.tensor].clone()
        yield how, lambda each: each[..., :half].clone() if each.ndim > 1 else each
    if layout.shards > 1:
        yield f"shards={layout.shards}", lambda each: _shard(each, layout, groups)


def _shard(whole: torch.Tensor, layout: Layout, groups: Groups) -> torch.Tensor:
    """Return this worker's shard of a tensor, as FSDP2 keeps it."""
    from torch.distributed.tensor import DTensor, Shard  # noqa: PLC0415 -- slow to load

    mesh = groups.mesh(layout)["shards"]
    size = -(-len(whole) // layout.shards)
    first = mesh.get_local_rank() * size
    return DTensor.from_local(
        whole[first : first + size].clone(),
        mesh,
        [Shard(0)],
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
