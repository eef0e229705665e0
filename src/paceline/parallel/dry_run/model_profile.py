"""A training's profile: its model's costs, counted on fake tensors."""

import dataclasses
import logging
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from paceline.comm.torch_internals import tree_leaves
from paceline.data.loader import Batch, collated
from paceline.parallel.dry_run.dry_run import Few, explained, users_line
from paceline.parallel.dry_run.fake_workers import (
    pretending,
    replaced,
    what_is_lacking,
    without_memory,
)
from paceline.parallel.dry_run.higher_order import HigherOrderCalls
from paceline.parallel.dry_run.late_compiler import without_compiler
from paceline.parallel.forward_trace import trace
from paceline.parallel.parallel_model import autocast, evaluating
from paceline.parallel.slices.slicing import find_slicing
from paceline.parallel.step.model_calls import call, checked_loss
from paceline.profile.counting import counted
from paceline.profile.forward_costs import Role
from paceline.specs import Layout, PacelineError, Profile
from paceline.user.parameters import Parameters
from paceline.user.training import Training

_CPU = torch.device("cpu")
_FAKE_TENSOR_LOG = logging.getLogger("torch._subclasses.fake_tensor")
"""Where torch writes a traceback for wrong shapes, before it raises the error."""
_ROWS = 2
"""Dimensions of a batch of tokens: samples and their tokens."""
_PARAMETERS = 1000
"""Size of the sample parameter that measures an optimizer's state."""


def profile_of(training: Training, name: str, layout: Layout) -> Profile:
    """Return the profile of a training's model in a layout's precision."""
    with without_compiler():
        return _profile_of(training, name, layout)


def _profile_of(training: Training, name: str, layout: Layout) -> Profile:
    state_bytes = _state_bytes(training)
    training = dataclasses.replace(training, data=Few(training))
    with warnings.catch_warnings(), pretending(), explained():
        warnings.simplefilter("ignore")  # a real run shows these warnings too
        model = without_memory(training.model())

        def forward(samples: int) -> tuple[Callable[[], Any], Callable[[Any], torch.Tensor]]:
            batch = collated(training.first(samples), _CPU, training.form)
            return (
                lambda: call(model, batch.inputs),
                lambda output: checked_loss(training.loss(output, batch.target)),
            )

        higher_order = HigherOrderCalls()
        with autocast(layout, _CPU), higher_order.explained():
            with higher_order:
                _try(*forward(2), higher_order)
            roles = _roles(model, forward(2)[0], layout.model_copy(update={"tensor": 2}))
            found = counted(name, model, roles, forward, state_bytes)
            sequence = _sequence(collated(training.first(2), _CPU, training.form))
            return found.model_copy(update={"sequence": sequence})


def _sequence(batch: Batch) -> int | None:
    """Return the tokens of a sample, which are integers beside as many others: the targets, a mask.

    A single row of integers may as well be categories of a table.
    """
    lengths = Counter(
        each.shape[1]
        for each in tree_leaves((batch.inputs, batch.target))
        if isinstance(each, torch.Tensor) and each.dim() == _ROWS and not each.is_floating_point()
    )
    rows = [length for length, times in lengths.items() if length > 1 and times > 1]
    return max(rows, default=None)


def _try(
    forward: Callable[[], Any],
    loss: Callable[[Any], torch.Tensor],
    higher_order: HigherOrderCalls,
) -> None:
    """Call the user's model and loss once; raise an error that says which line of them fails."""
    what = "the model's forward"
    try:
        with replaced(_FAKE_TENSOR_LOG, "disabled", True):
            output = forward()
            what = "the loss"
            loss(output)
    except PacelineError:
        raise
    except Exception as error:
        if higher_order.names or what_is_lacking(error) is not None:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PacelineError(
            f"{what} fails on a batch of two samples: {users_line(error)}: {reason}",
            fix="make the samples of the training's data and the arguments and shapes of its model"
            " and loss agree, and try it: paceline run TRAIN -n 1",
        ) from error


def _roles(model: nn.Module, forward: Callable[[], Any], layout: Layout) -> dict[str, Role]:
    """Return how the engine would slice the model's layers; empty if it cannot."""
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
    """Return the bytes of optimizer state per parameter, after a step with a sample parameter.

    An average of the weights is updated and kept like one more number of that state.
    """
    parameter = nn.Parameter(torch.zeros(_PARAMETERS))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = training.optimizer(Parameters([("weight", parameter)]))
    optimizer.step()
    kept = [
        each.nbytes
        for state in optimizer.state.values()
        for each in state.values()
        if isinstance(each, torch.Tensor) and each.numel() > 1
    ]
    average = parameter.nbytes if training.average is not None else 0
    return (sum(kept) + average) / _PARAMETERS
