"""The batch as a part of the plan: what each one takes to the same loss."""

from pydantic import PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.measurements.learning import CriticalBatch
from paceline.specs.plans.estimate import TrainingCost
from paceline.specs.plans.layout import Layout


class BatchOption(Spec):
    """A batch with the number of nodes that suits the goal best, and what it takes there."""

    batch: PositiveInt
    nodes: PositiveInt
    layout: Layout
    step_seconds: PositiveFloat
    samples_times: PositiveFloat
    """Samples to the same loss, relative to the training's own batch."""
    cost: TrainingCost


class BatchChoice(Spec):
    """The batches that were compared, and how certain the choice is."""

    own: PositiveInt
    """The batch that the training has now."""
    critical: CriticalBatch
    options: tuple[BatchOption, ...]
    same_from: PositiveFloat | None
    """The smallest critical batch with the same choice; None if every smaller one has it."""
    same_to: PositiveFloat | None
    wasted_beyond: PositiveInt | None
    """The batch with the number of nodes beyond which another one adds less than half."""


class StageOption(Spec):
    """A stage of a batch that grows, and the number of nodes that suits the goal best in it."""

    batch: PositiveInt
    nodes: PositiveInt
    workers: PositiveInt
    step_seconds: PositiveFloat
    planned_step_seconds: PositiveFloat | None
    """On the nodes of the plan, which is for the largest batch; None where the batch is too small
    for them."""
