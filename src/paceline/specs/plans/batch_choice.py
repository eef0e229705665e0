"""The batch as a part of the plan: what each one takes to the same loss."""

from pydantic import PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.measurements.learning import CriticalBatch
from paceline.specs.plans.batch_rule import BatchRule
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


class OptimizerRules(Spec):
    """What changes in the settings of an optimizer that were tuned at another batch."""

    adam: BatchRule
    """For Adam and others that divide by the size of past gradients."""
    sgd: BatchRule


class BatchChoice(Spec):
    """The batches that were compared, and how certain the choice is."""

    own: PositiveInt
    """The batch that the training has now; of a model by its dimensions, the first one."""
    critical: CriticalBatch
    options: tuple[BatchOption, ...]
    same_from: PositiveFloat | None
    """The smallest critical batch with the same choice; None if every smaller one has it."""
    same_to: PositiveFloat | None
    rules: OptimizerRules
    """From `own` to the chosen batch."""
    wasted_beyond: PositiveInt | None
    """The batch with the number of nodes beyond which another one adds less than half."""


class LargerBatch(Spec):
    """What twice the plan's batch takes to the same loss, on the plan's nodes."""

    batch: PositiveInt
    samples_times: PositiveFloat
    """Samples to the same loss, relative to the plan's batch."""
    layout: Layout
    step_seconds: PositiveFloat
    cost: TrainingCost


class StageOption(Spec):
    """A stage of a batch that grows, and the number of nodes that suits the goal best in it."""

    batch: PositiveInt
    nodes: PositiveInt
    workers: PositiveInt
    step_seconds: PositiveFloat
    planned_step_seconds: PositiveFloat | None
    """On the nodes of the plan, which is for the largest batch; None where the batch is too small
    for them."""
