"""What a plan is expected to take: numbers that say where they come from and how sure they are."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.plans.layout import Layout
from paceline.specs.plans.sync import AnySync, default_sync

Origin = Literal["measured", "published", "assumed"]
"""`measured`: fitted to runs on this cluster. `published`: from a maker's or a paper's figure.
`assumed`: a habit of software that no source states for this cluster."""


class Amount(Spec):
    """A number with the interval that should hold it nine times out of ten."""

    value: NonNegativeFloat
    low: NonNegativeFloat
    high: NonNegativeFloat
    origin: Origin
    """The weakest of what it was computed from."""


class Estimate(Spec):
    """One layout of one model on one cluster."""

    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    """How its replicas agree."""
    extra_samples: PositiveFloat = 1.0
    """How many times as many samples as with plain all-reduce this takes to the same loss: always
    assumed."""
    batch: int
    step_seconds: Amount
    """On average, where not all steps exchange something."""
    simulated_seconds: PositiveFloat | None = None
    """Of a step, event by event, with workers that differ; for the best layouts only."""
    seconds: dict[str, NonNegativeFloat]
    """Of a step, by what they are spent on; together `step_seconds.value`."""
    peak_bytes: Amount
    """On the fullest device."""
    bytes: dict[str, NonNegativeFloat]
    """On the fullest device, by what they hold; together `peak_bytes.value`."""
    fits: bool
    """Whether they fit into the device's memory."""
    flops_per_sample: PositiveFloat | None = None
    """Of the model's matrix products, forward and backward, without anything computed again."""
    device_peak_flops: PositiveFloat | None = None
    """Of one device in the layout's precision, in a second."""


class Alternative(Spec):
    """A layout that was not chosen."""

    what: str
    """How it differs, in words."""
    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    step_seconds: PositiveFloat | None = None
    """None where it does not fit."""
    peak_bytes: NonNegativeFloat
    why: str
    """It lost."""


class ScalingPoint(Spec):
    """The best layout on some number of nodes."""

    nodes: PositiveInt
    devices: PositiveInt
    layout: Layout
    sync: AnySync = Field(default_factory=default_sync)
    step_seconds: Amount
    samples_per_second: PositiveFloat
    efficiency: PositiveFloat
    """Samples per second and node, by those of the fewest nodes that it fits on; samples from which
    less is learned count less."""


class Help(Spec):
    """What a change of the cluster or the batch would bring."""

    change: str
    faster: PositiveFloat
    """Samples per second, by those of the plan."""


class TrainingCost(Spec):
    """A whole training by a plan."""

    steps: PositiveInt
    seconds: Amount
    """With what failures and checkpoints cost."""
    goodput: PositiveFloat
    """Of this time, what is training that is not lost again."""
    save_every_seconds: PositiveFloat
    """The interval between checkpoints that loses least."""
    device_hours: PositiveFloat
    kilowatt_hours: PositiveFloat | None = None
    """None where the power of the devices is not known."""
    money: PositiveFloat | None = None
    """None where the cluster's file has no price."""
    slots: PositiveInt | None = None
    """Turns under the scheduler's time limit, where one was given."""


class Answer(Spec):
    """All that `paceline plan` says."""

    model: str
    parameters: PositiveInt
    batch: PositiveInt
    device: str
    goal: str
    nodes: PositiveInt
    devices_per_node: PositiveInt
    estimate: Estimate
    agreeing: str = ""
    """How replicas agree and why so, in words; empty where there are none."""
    alternatives: tuple[Alternative, ...]
    curve: tuple[ScalingPoint, ...]
    wasted_beyond: PositiveInt | None
    """Nodes beyond which a further one brings less than half of what the first ones do; none where
    this number was not reached."""
    too_few: PositiveInt | None
    """The largest number of nodes on which nothing fits, of those that were looked at."""
    helps: tuple[Help, ...]
    scored: PositiveInt
    """Layouts that were looked at."""
    training: TrainingCost | None = None
    """None where nobody said for how many steps."""
    remarks: tuple[str, ...] = ()
