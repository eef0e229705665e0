"""Checks of the fields of a training: their names, and that functions are given where needed."""

import difflib
from collections.abc import Iterable
from dataclasses import MISSING, Field
from typing import Any

import torch
from torch import nn

from paceline.specs import PacelineError
from paceline.user.phase import of_phases

OF_PHASES = ("loss", "optimizer", "clip", "schedule")
"""Fields that each phase has instead of the training."""


def check_functions(training: Any) -> None:
    """Raise if a model or optimizer is built already, or a function cannot be called."""
    if isinstance(training.model, nn.Module):
        raise PacelineError(
            f"Training(model=…) is a {type(training.model).__name__} that is built already,"
            " but each worker must build its own",
            fix=f"write model=lambda: {type(training.model).__name__}(…)",
        )
    if isinstance(training.optimizer, torch.optim.Optimizer):
        name = type(training.optimizer).__name__
        raise PacelineError(
            f"Training(optimizer=…) is a {name} that is built already, but each worker builds"
            " one for its own parameters",
            fix=f"write optimizer=lambda parameters: torch.optim.{name}(parameters, lr=…)",
        )
    optional = ("collate", "size", "cut", "split", "weight", "schedule", "order")
    for name in ("model", "loss", "optimizer", *optional):
        missing = name in optional and getattr(training, name) is None
        if not missing and not callable(getattr(training, name)):
            kind = type(getattr(training, name)).__name__
            raise PacelineError(
                f"Training({name}=…) is of type {kind}, which cannot be called",
                fix=f"give a function: {name}=lambda …",
            )


def check_fields(
    all_fields: Iterable[Field[Any]], given: dict[str, object], *, positional: int
) -> None:
    """Raise if a field of `Training` is unknown or missing, or given without its name."""
    known = {each.name: each for each in all_fields}
    if positional:
        raise PacelineError(
            "Training(…) was given a value without a name", fix="name every field: model=…, loss=…"
        )
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise PacelineError(
                f"Training has no field {name}",
                fix=f"did you mean {near[0]}=…?" if near else f"fields: {', '.join(known)}",
            )
    needed = [name for name, each in known.items() if each.default in (MISSING, of_phases)]
    if given.get("phases") is not None:
        needed = [name for name in needed if name not in OF_PHASES]
    missing = [name for name in needed if name not in given]
    if missing:
        raise PacelineError(
            f"Training(…) has no {' and no '.join(missing)}", fix=f"give {missing[0]}=…"
        )
