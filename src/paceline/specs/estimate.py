"""What a plan is expected to take: numbers that say where they come from and how sure they are."""

from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.layout import Layout

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
    batch: int
    step_seconds: Amount
    seconds: dict[str, NonNegativeFloat]
    """Of a step, by what they are spent on; together `step_seconds.value`."""
    peak_bytes: Amount
    """On the fullest device."""
    bytes: dict[str, NonNegativeFloat]
    """On the fullest device, by what they hold; together `peak_bytes.value`."""
    fits: bool
    """Whether they fit into the device's memory."""


class Alternative(Spec):
    """A layout that was not chosen."""

    what: str
    """How it differs, in words."""
    layout: Layout
    step_seconds: PositiveFloat
    peak_bytes: NonNegativeFloat
    fits: bool
    why: str
    """It lost."""


class ScalingPoint(Spec):
    """The best layout on some number of nodes."""

    nodes: PositiveInt
    devices: PositiveInt
    layout: Layout
    step_seconds: Amount
    samples_per_second: PositiveFloat
    efficiency: PositiveFloat
    """Samples per second and node, by those of the fewest nodes that it fits on."""


class Help(Spec):
    """What a change of the cluster or the batch would bring."""

    change: str
    faster: PositiveFloat
    """Samples per second, by those of the plan."""


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
    alternatives: tuple[Alternative, ...]
    curve: tuple[ScalingPoint, ...]
    wasted_beyond: PositiveInt | None
    """Nodes beyond which a further one brings less than half of what the first ones do; none where
    this number was not reached."""
    helps: tuple[Help, ...]
    scored: PositiveInt
    """Layouts that were looked at."""
    remarks: tuple[str, ...] = ()
