"""What a plan is expected to take: numbers that say where they come from and how sure they are."""

from typing import Literal

from pydantic import NonNegativeFloat

from paceline.specs.base import Spec
from paceline.specs.plan import Layout

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
