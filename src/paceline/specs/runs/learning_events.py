"""Events about the batch and what is learned from it."""

from typing import Literal

from pydantic import Field, NonNegativeFloat

from paceline.specs.plans.batch_rule import BatchRule
from paceline.specs.runs.event import Event, Whole


class Noise(Event):
    """Gradient noise; every list has one entry per measured step. From worker 0's node."""

    kind: Literal["noise"] = "noise"
    steps: list[Whole]
    samples: list[NonNegativeFloat]
    """Samples in the global batch; with a weight function, their weight."""
    variance: list[float]
    """Variance of one sample's gradient, summed over all parameters: an estimate of one step."""
    signal: list[float]
    """Squared norm of the mean gradient: an estimate of one step, often negative."""
    weighted_variance: list[float | None] = Field(default_factory=list)
    weighted_signal: list[float | None] = Field(default_factory=list)
    """Both with the coordinates weighted as by an optimizer that divides by the size of past
    gradients, such as Adam; None where that was not measured."""
    of_changes: bool = False
    """Whether these are of the changes of weights between two rounds of local steps, not of
    gradients: their ratio is a noise scale, their units are not those of gradients."""


class RuleApplied(Event):
    """Settings were changed for another batch than they were tuned at. From worker 0's node."""

    kind: Literal["rule"] = "rule"
    phase: str = ""
    """The phase whose optimizer it is; empty without phases."""
    optimizer: str
    """Its class."""
    rule: BatchRule
    rates: list[float]
    """Learning rates after the rule, of each group of parameters, before any schedule."""
    steps: Whole
    tuned_steps: Whole
    """Steps that the training would have had at the batch that it was tuned at."""


class Grew(Event):
    """The global batch grew by the measured gradient noise. From worker 0's node."""

    kind: Literal["grew"] = "grew"
    step: Whole
    """The last step with the smaller batch."""
    samples: Whole
    """Samples trained on until then."""
    batch: Whole
    """The larger batch."""
    steps: Whole
    """Planned steps of the run, with it."""
