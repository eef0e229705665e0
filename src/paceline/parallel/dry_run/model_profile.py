"""A training's profile: its model's costs, counted on tensors without memory."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from paceline.data.loader import collated
from paceline.parallel.arranged import autocast, evaluating
from paceline.parallel.dry_run.dry_run import Few, explained
from paceline.parallel.dry_run.fake_workers import pretending, without_memory
from paceline.parallel.forward_trace import trace
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.profile.counting import counted
from paceline.profile.forward_costs import Role
from paceline.specs import Layout, PacelineError, Profile
from paceline.user.training import Training

_CPU = torch.device("cpu")
_PARAMETERS = 1000
"""Of a tensor that stands for all when an optimizer's state is looked at."""


def profile_of(training: Training, name: str, layout: Layout) -> Profile:
    """The profile of a training's model, in the precision of a layout."""
    state_bytes = _state_bytes(training)
    training = dataclasses.replace(training, data=Few(training.data))
    # Slicing it in two loads what is needed to find out how the model can be sliced.
    sliced = layout.model_copy(update={"tensor": 2})
    with warnings.catch_warnings(), pretending(sliced), explained():
        warnings.simplefilter("ignore")  # a run says them, too
        model = without_memory(training.model())

        def forward(samples: int) -> tuple[Callable[[], Any], Callable[[Any], torch.Tensor]]:
            batch = collated(training.data, samples, _CPU, split=training.split)
            return (
                lambda: call(model, batch.inputs),
                lambda output: checked_loss(training.loss(output, batch.target)),
            )

        with autocast(layout, _CPU):
            roles = _roles(model, forward(2)[0], sliced)
            return counted(name, model, roles, forward, state_bytes)


def _roles(model: nn.Module, forward: Callable[[], Any], layout: Layout) -> dict[str, Role]:
    """How the engine would slice the model's layers; none where it cannot."""
    from paceline.parallel.slices.slicing import find_slicing  # noqa: PLC0415 -- loaded before

    with evaluating(model):
        seen = trace(model, forward)
    try:
        slicing = find_slicing(model, seen, layout)
    except PacelineError:
        return {}
    roles: dict[str, Role] = dict.fromkeys(slicing.columns, "columns")
    roles |= dict.fromkeys(slicing.rows, "rows")
    roles |= dict.fromkeys(slicing.embeddings, "vocabulary")
    return roles | ({slicing.head: "columns"} if slicing.head else {})


def _state_bytes(training: Training) -> float:
    """What the optimizer keeps for a parameter, after a step with one that stands for all."""
    parameter = nn.Parameter(torch.zeros(_PARAMETERS))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = training.optimizer(iter([parameter]))
    optimizer.step()
    kept = [
        each.nbytes
        for state in optimizer.state.values()
        for each in state.values()
        if isinstance(each, torch.Tensor) and each.numel() > 1
    ]
    return sum(kept) / _PARAMETERS
