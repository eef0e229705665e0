"""Check before training that an optimizer updates divided parameters as it updates whole ones.

Most optimizers treat each element of a parameter alone, so that it can lie on any worker. Others
need rows, columns or norms of the whole parameter. Under shards, torch's DTensor computes these
over all workers, or fails. A tensor-parallel slice looks like a whole parameter to an optimizer,
and its update would silently differ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.parallel.part_sums import give_sums
from paceline.specs import Layout, PacelineError
from paceline.user.parameters import Parameters

ELEMENTWISE = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "NAdam", "RAdam")
"""Some of torch's optimizers that any layout can divide."""
LAYERWISE = ("paceline.LARS", "paceline.LAMB")
"""Optimizers that get the norms of whole weights from the layout."""

_STEPS = 3
_DIFFERENT = "its weights would differ from those of one worker"
_TOLERANCE = 0.02
"""Relative to the change of the weights: Muon computes in bf16. A wrong update is far off."""


@dataclass(frozen=True)
class _Division:
    """One of the ways in which a layout divides parameters."""

    how: str
    divide: Callable[[torch.Tensor], torch.Tensor]
    """Return this worker's part of a whole tensor."""
    prepare: Callable[[torch.optim.Optimizer], None]
    """Give an optimizer what it gets in training."""


_WHOLE = _Division("whole", lambda each: each, lambda optimizer: None)


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
            name: _numbers((rows, *[2 * layout.tensor + 2] * (ndim - 1)), groups.device, _STEPS)
            for ndim, name in kinds.items()
        }
        with torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            try:
                optimizer, expected = self._trained(whole, _WHOLE)
            except Exception:  # the user's function may accept only the model's own parameters
                return
            if not torch.equal(before, torch.random.get_rng_state()):
                return  # random updates differ by nature
            for division in _divisions(layout, groups):
                why = self._difference(whole, expected, division)
                wrong = torch.tensor(float(why is not None), device=groups.device)
                if float(groups.sum(wrong)):
                    raise PacelineError(
                        f"{type(optimizer).__name__} was given together with {division.how}:"
                        f" {why or _DIFFERENT}",
                        fix="use an optimizer that treats each element of a parameter alone, such"
                        f" as {', '.join(ELEMENTWISE)}, or {' or '.join(LAYERWISE)}, or replicas"
                        " only",
                    )

    def _difference(
        self,
        whole: dict[str, torch.Tensor],
        expected: list[torch.Tensor],
        division: _Division,
    ) -> str | None:
        try:
            _, found = self._trained(whole, division)
        except Exception as error:  # whatever the optimizer's own code raises
            said = (str(error).strip().splitlines() or [""])[0]
            return f"its step fails with {type(error).__name__}: {said}"
        for initial, one, each in zip(whole.values(), expected, found, strict=True):
            change = local_tensor(division.divide(one - initial))
            difference = local_tensor(each) - local_tensor(division.divide(one))
            if difference.norm() > _TOLERANCE * change.norm():
                return _DIFFERENT
        return None

    def _trained(
        self, whole: dict[str, torch.Tensor], division: _Division
    ) -> tuple[torch.optim.Optimizer, list[torch.Tensor]]:
        named = {name: nn.Parameter(division.divide(each.clone())) for name, each in whole.items()}
        parameters = list(named.values())
        optimizer: Any = self.build(Parameters(named.items()))
        division.prepare(optimizer)
        for step in range(_STEPS):
            gradients = [
                division.divide(_numbers(tuple(each.shape), each.device, step))
                for each in whole.values()
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


def _divisions(layout: Layout, groups: Groups) -> Iterator[_Division]:
    """Yield rows and columns of tensor-parallel slices, and shards."""
    position, ways = layout.position(groups.placement.rank), layout.tensor

    def row(each: torch.Tensor) -> torch.Tensor:
        return each.tensor_split(ways)[position.slice].clone()

    def column(each: torch.Tensor) -> torch.Tensor:
        if each.ndim == 1:
            return each
        return each.tensor_split(ways, dim=-1)[position.slice].clone()

    def sums(
        counts: Callable[[torch.Tensor], bool],
    ) -> Callable[[torch.optim.Optimizer], None]:
        return partial(give_sums, layout=layout, groups=groups, counts=counts)

    first_shard, first_slice = position.shard == 0, position.slice == 0
    if ways > 1:
        how = f"tensor={ways}"
        yield _Division(how, row, sums(lambda part: first_shard))
        yield _Division(
            how, column, sums(lambda part: first_shard and (first_slice or part.ndim > 1))
        )
    if layout.shards > 1:
        yield _Division(
            f"shards={layout.shards}",
            lambda each: _shard(each, layout, groups),
            sums(lambda part: first_slice),
        )


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
