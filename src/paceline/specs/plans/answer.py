"""The planner's whole answer."""

from pydantic import PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.batch_choice import BatchChoice, StageOption
from paceline.specs.plans.estimate import Alternative, Estimate, Help, ScalingPoint, TrainingCost


class Answer(Spec):
    """The result of `paceline plan`."""

    model: str
    engine: str = "Paceline"
    """The training engine that the plan is for."""
    engine_score: str = ""
    """How good predictions for it are, and on which measurements."""
    engine_settings: str = ""
    """Its own settings for the layout; empty for Paceline, whose plan file has them."""
    parameters: PositiveInt
    batch: PositiveInt
    device: str
    goal: str
    nodes: PositiveInt
    devices_per_node: PositiveInt
    estimate: Estimate
    samples_per_second: PositiveFloat
    mfu: PositiveFloat | None = None
    """Model FLOPs utilization; None if FLOPs or peak are unknown."""
    sync_reason: str = ""
    """The synchronization mode and the reason for it, in words; empty without replicas."""
    alternatives: tuple[Alternative, ...]
    curve: tuple[ScalingPoint, ...]
    wasted_beyond: PositiveInt | None
    """Nodes beyond which another one adds less than half the throughput per node of the smallest
    point; None if no such number was reached."""
    too_few: PositiveInt | None
    """The largest considered number of nodes on which nothing fits."""
    helps: tuple[Help, ...]
    scored: PositiveInt
    """Number of layouts scored."""
    training: TrainingCost | None = None
    """None if the number of steps is unknown."""
    batches: BatchChoice | None = None
    """The batches that were compared; None if one was given."""
    stages: tuple[StageOption, ...] = ()
    """The stages of a batch that grows, from the smallest."""
    uncounted_operators: tuple[str, ...] = ()
    """Operators without a FLOP count; a remark says what their time is taken from."""
    remarks: tuple[str, ...] = ()
