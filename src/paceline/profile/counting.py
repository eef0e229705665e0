"""Costs of one step of a model, counted without its hardware from two forwards.

The difference between a forward of two samples and one of three is the cost of a sample.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from paceline.comm.torch_internals import BatchNormLayer
from paceline.profile.forward_costs import Role, Seen, Sliced, watched
from paceline.profile.matmuls import Product
from paceline.specs.measurements.profile import LayerCost, Matmul, Profile

Forward = Callable[[int], tuple[Callable[[], Any], Callable[[Any], torch.Tensor]]]
"""For a number of samples, returns a function that calls the model on them, and one that
computes the loss from the output."""

_ADDED = (
    "moved_bytes",
    "moved_bytes_whole",
    "saved_bytes",
    "saved_bytes_whole",
    "product_bytes",
    "product_bytes_whole",
    "output_bytes",
    "reductions",
)


def counted(
    name: str, model: nn.Module, roles: Mapping[str, Role], forward: Forward, state_bytes: float
) -> Profile:
    """Return the costs of a model; with meta tensors, this needs no memory and a few seconds.

    `roles`: how tensor parallelism slices the layers; `state_bytes`: optimizer state per parameter.
    """
    few, more = (watched(model, roles, *forward(samples)) for samples in (2, 3))
    before, *inside, after = (_cost(*pair) for pair in zip(few, more, strict=True))
    # At the start of backward, the gradient of the output is in memory beside the output.
    ending = after.saved_bytes_whole + after.output_bytes
    return Profile(
        name=name,
        before=before.model_copy(update={"name": "before"}),
        block=_mean(inside),
        after=after.model_copy(update={"name": "after", "saved_bytes_whole": ending}),
        batch_norm=any(isinstance(each, BatchNormLayer) for each in model.modules()),
        tensors=len(list(model.parameters())),
        state_bytes=state_bytes,
        uncounted_operators=tuple(sorted(set().union(*(each.uncounted for each in few)))),
    )


def _cost(few: Seen, more: Seen) -> LayerCost:
    def of_a_sample(what: Callable[[Seen], float]) -> float:
        return max(0.0, what(more) - what(few))

    return LayerCost(
        name="block",
        matmuls=tuple(_matmuls(few.products, more.products)),
        kernels=max(1, few.operators),
        parameters=few.parameters[True],
        parameters_whole=few.parameters[False],
        moved_bytes=of_a_sample(lambda seen: seen.moved[True]),
        moved_bytes_whole=of_a_sample(lambda seen: seen.moved[False]),
        saved_bytes=of_a_sample(lambda seen: seen.saved[True]),
        saved_bytes_whole=of_a_sample(lambda seen: seen.saved[False]),
        product_bytes=of_a_sample(lambda seen: seen.results[True]),
        product_bytes_whole=of_a_sample(lambda seen: seen.results[False]),
        output_bytes=of_a_sample(lambda seen: seen.output),
        reductions=few.reductions,
    )


def _matmuls(
    few: Sequence[tuple[Product, Sliced]], more: Sequence[tuple[Product, Sliced]]
) -> Iterator[Matmul]:
    """Yield the products of one sample, without those that do not grow with the samples."""
    found: Counter[Matmul] = Counter()
    for (small, sliced), (large, _) in zip(few, more, strict=True):
        rows, repeats = large.rows - small.rows, large.repeats - small.repeats
        if rows <= 0 and repeats <= 0:
            continue
        matmul = Matmul(
            rows=small.rows if repeats > 0 else rows,
            inner=small.inner,
            columns=small.columns,
            repeats=repeats if repeats > 0 else small.repeats,
            each_sample=repeats > 0,
            computed=small.computed,
            reused=small.reused,
            sliced=sliced,
            attention=small.attention,
            queries_per_key=small.queries_per_key,
        )
        found[matmul] += 1
    for matmul, count in found.items():
        yield matmul.model_copy(update={"count": float(count)})


def _mean(costs: Sequence[LayerCost]) -> LayerCost:
    """Return the mean block."""
    counts: dict[Matmul, float] = {}
    for cost in costs:
        for matmul in cost.matmuls:
            one = matmul.model_copy(update={"count": 1.0})
            counts[one] = counts.get(one, 0.0) + matmul.count
    number = len(costs)
    return LayerCost(
        name="block",
        count=number,
        repeated=True,
        matmuls=tuple(
            matmul.model_copy(update={"count": count / number}) for matmul, count in counts.items()
        ),
        kernels=max(1, sum(cost.kernels for cost in costs) // number),
        parameters=sum(cost.parameters for cost in costs) // number,
        parameters_whole=sum(cost.parameters_whole for cost in costs) // number,
        **{name: sum(getattr(cost, name) for cost in costs) / number for name in _ADDED},
    )
