"""The user's description of a validation: held-out data, metrics, the best model, when to stop."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import Dataset

from paceline.specs import PacelineError, Saving
from paceline.specs.plans.saving import Best


@runtime_checkable
class MetricObject(Protocol):
    """A metric with a state, as torchmetrics has them: not only means over samples."""

    def update(self, output: Any, target: Any) -> None:
        """Add a batch to the state."""

    def compute(self) -> Any:
        """Return the metric of all batches, one number."""

    def reset(self) -> None:
        """Forget all batches."""


Metric = Callable[[Any, Any], torch.Tensor] | MetricObject
"""A function of output and target that returns a mean over samples, or an object."""

_NAME = re.compile(r"[A-Za-z_][\w./-]{0,79}", re.ASCII)


@dataclass(frozen=True)
class Validation:
    """Evaluate a training on held-out data while it trains."""

    data: "Dataset[Any]"
    """A map-style dataset of pairs, as the training's."""
    _: KW_ONLY
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """`name -> function(output, target)`, which returns the mean over the samples of a batch, or
    `name -> object` with `update`, `compute` and `reset`, such as a `torchmetrics.Metric`."""
    every_steps: int | None = None
    """Steps between validations. Give this or `every_epochs`."""
    every_epochs: int | None = None
    """Epochs between validations; 1 if nothing is given. The last step is always validated."""
    best: str = "loss"
    """The metric that chooses the best model: the lowest "loss", the highest of another one. Write
    "min NAME" or "max NAME" for another sense."""
    patience: int | None = None
    """Stop after this many validations in a row without a better one."""
    export: str | Path | None = None
    """File for the weights of the best model; by default `best.safetensors` in the run's folder.
    Without a run folder, only a given file is written."""

    def __post_init__(self) -> None:
        if self.every_steps is not None and self.every_epochs is not None:
            raise PacelineError(
                "Validation has every_steps and every_epochs", fix="give one of them"
            )
        for name in ("every_steps", "every_epochs", "patience"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise PacelineError(
                    f"Validation({name}={value!r}) is no positive integer",
                    fix=f"give {name} of at least 1, or leave it out",
                )
        for metric, measure in self.metrics.items():
            if not isinstance(measure, MetricObject) and not callable(measure):
                raise PacelineError(
                    f"Validation(metrics=…) has a {type(measure).__name__} as {metric!r}",
                    fix="give a function of output and target, or a torchmetrics.Metric",
                )
            if not _NAME.fullmatch(metric) or metric == "loss":
                raise PacelineError(
                    f"Validation(metrics=…) has a metric named {metric!r}",
                    fix="use ASCII letters, digits, _ . / and -, beginning with a letter; the loss"
                    " is always there",
                )
        if self.compared.metric not in ("loss", *self.metrics):
            raise PacelineError(
                f"Validation(best={self.best!r}) names no metric",
                fix=f"give one of: {', '.join(['loss', *self.metrics])}",
            )

    @property
    def compared(self) -> Best:
        """The metric that chooses the best model, and its sense."""
        sense, _, metric = self.best.rpartition(" ")
        if sense in ("min", "max"):
            return Best("min" if sense == "min" else "max", metric)
        return Best("min" if self.best == "loss" else "max", self.best)

    def keeping_best(self, saving: Saving) -> Saving:
        """Return settings that keep the best checkpoint, by this metric unless they name one."""
        if saving.keep_best is not None:
            return saving
        return saving.model_copy(update={"keep_best": " ".join(self.compared)})

    def is_due(self, step: int, epochs_ended: int) -> bool:
        """Return whether to validate after a step; `epochs_ended`: how many passes over the data
        end with it, 0 if none does."""
        if self.every_steps:
            return step % self.every_steps == 0
        return epochs_ended > 0 and epochs_ended % (self.every_epochs or 1) == 0
