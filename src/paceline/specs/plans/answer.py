"""The planner's whole answer."""

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.batch_choice import BatchChoice, LargerBatch, StageOption
from paceline.specs.plans.estimate import (
    Alternative,
    Amount,
    Estimate,
    Help,
    ScalingPoint,
    TrainingCost,
)
from paceline.specs.plans.layout import Layout


class NodeShort(Spec):
    """A run whose survivors have regrouped after the loss of a node."""

    nodes: PositiveInt
    """Nodes that are left."""
    layout: Layout | None = None
    """None if the layout needs more workers than are left."""
    step_seconds: Amount | None = None
    peak_bytes: PositiveFloat | None = None
    """Peak memory of the fullest device."""
    fits: bool = False
    """Whether that fits into the device's memory."""


class ComputeOrigin(Spec):
    """The origin of the compute time of a micro-batch in the whole model, as fractions; formulas
    give the rest."""

    kernels: NonNegativeFloat
    """From measured kernels of the device: matrix products and attention within their sizes."""
    blocks: NonNegativeFloat
    """From blocks of the model, timed on the device."""
    source: str = ""
    """The device, versions and day of the measured kernels; empty without them."""


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
    sequence: PositiveInt | None = None
    """Tokens per sample; None if the samples are not made of tokens, or it is not known."""
    tokens_per_second: PositiveFloat | None = None
    samples_per_money: PositiveFloat | None = None
    """Samples per unit of the price's currency, with failures and checkpoints; None without a
    price."""
    tokens_per_money: PositiveFloat | None = None
    samples_per_kwh: PositiveFloat | None = None
    """Samples per kWh at the wall, with failures and checkpoints; None if the devices' power is
    unknown."""
    tokens_per_kwh: PositiveFloat | None = None
    currency: str = ""
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
    node_short: NodeShort | None = None
    """With a node less; None on one node, on nodes of several kinds, and for other engines than
    Paceline's."""
    training: TrainingCost | None = None
    """None if the number of steps is unknown."""
    spot: TrainingCost | None = None
    """The same on spot nodes; None if the prices have none, or they are taken back too often."""
    batches: BatchChoice | None = None
    """The batches that were compared; None if one was given."""
    larger_batch: LargerBatch | None = None
    """The price of going larger; None without a critical batch, or without a layout."""
    stages: tuple[StageOption, ...] = ()
    """The stages of a batch that grows, from the smallest."""
    compute_origin: ComputeOrigin | None = None
    """Where the compute time comes from."""
    uncounted_operators: tuple[str, ...] = ()
    """Operators without a FLOP count; a remark says what their time is taken from."""
    remarks: tuple[str, ...] = ()
