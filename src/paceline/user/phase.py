"""A phase of a training: one of several optimizers, with its loss and its parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from paceline.specs import PacelineError
from paceline.user.parameters import Parameters

PhaseLoss = Callable[[nn.Module, Any, Any], torch.Tensor]
"""`loss(model, inputs, target)`: return a scalar, the mean over the samples of the batch."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One synchronized update of a step: its loss, its optimizer and the parameters it trains."""

    loss: PhaseLoss
    """`loss(model, inputs, target)`: call parts of the model, and return the mean over samples."""
    optimizer: Callable[[Parameters], torch.optim.Optimizer]
    """Build the optimizer for the phase's parameters; `.named()` yields them with their names."""
    parameters: str | Sequence[str] = "*"
    """Names of the parameters that the phase trains, as patterns such as `generator.*`."""
    every: int = 1
    """Take the phase in every this many steps."""
    schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None
    """Build the learning-rate schedule, which advances once per update of this phase."""
    clip: float | None = None
    """Clip the gradient of the phase's parameters to this norm."""
    closure: bool = False
    """Call `optimizer.step(closure)`: the optimizer evaluates loss and gradient several times."""

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, torch.optim.Optimizer):
            raise PacelineError(
                f"Phase(optimizer=…) is a {type(self.optimizer).__name__} that is built already",
                fix="write optimizer=lambda parameters: …: each worker builds its own",
            )
        for name in ("loss", "optimizer"):
            if not callable(getattr(self, name)):
                kind = type(getattr(self, name)).__name__
                raise PacelineError(
                    f"Phase({name}=…) is of type {kind}, which cannot be called",
                    fix=f"give a function: {name}=lambda …",
                )
        if not isinstance(self.every, int) or self.every < 1:
            raise PacelineError(
                f"Phase(every={self.every}) is not a number of steps", fix="give 1 or more"
            )

    def trains(self, name: str) -> bool:
        """Return whether the phase trains the parameter of this name."""
        patterns = [self.parameters] if isinstance(self.parameters, str) else self.parameters
        return any(fnmatchcase(name, pattern) for pattern in patterns)


def of_phases(*given: object) -> NoReturn:
    """Stand in for the loss and the optimizer of a training with phases, and refuse any call."""
    del given
    raise PacelineError(
        "this needs one loss and one optimizer, but the training has phases",
        fix="train it with `run` or `submit`; plan and dry runs do not know phases",
    )


def check_phases(phases: Mapping[str, Phase], also_given: Sequence[str]) -> None:
    """Raise if phases are empty, misnamed or never due, or contradict other fields."""
    if also_given:
        raise PacelineError(
            f"Training was given phases=… together with {also_given[0]}=…",
            fix=f"give {also_given[0]}=… to each Phase, and leave it out of Training",
        )
    for name, phase in phases.items():
        if not isinstance(phase, Phase):
            raise PacelineError(
                f"phase {name!r} is of type {type(phase).__name__}", fix="give a paceline.Phase(…)"
            )
        if not isinstance(name, str) or not name.isidentifier():
            raise PacelineError(
                f"phase {name!r} has no usable name", fix="use letters, digits and underscores"
            )
    if all(phase.every > 1 for phase in phases.values()):
        raise PacelineError(
            "no phase is due in every step, so some steps would train nothing",
            fix="give one phase every=1, and count the others in its steps",
        )


def reported_phase(phases: Mapping[str, Phase]) -> str:
    """Return the name of the phase whose loss is the step's: the first one due in every step."""
    return next(name for name, phase in phases.items() if phase.every == 1)
