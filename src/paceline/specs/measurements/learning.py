"""How large a batch a training can use, as measured: `learning.toml`."""

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from paceline.specs.base import Spec


class NoisePoint(Spec):
    """The gradient noise scale over a part of a run, in samples, with its 90 % interval."""

    samples: PositiveInt
    """Samples trained on until its end."""
    scale: NonNegativeFloat | None = None
    """None where the signal is lost in the noise."""
    low: NonNegativeFloat
    high: NonNegativeFloat | None = None
    """None where it is not bounded."""


class Learning(Spec):
    """The critical batch of a training, in samples, and how the noise scale grew."""

    training: str
    """FILE:FUNCTION, without folders."""
    batch: PositiveFloat
    steps: PositiveInt
    """Steps that were taken."""
    critical: PositiveFloat | None = None
    """None where the signal is lost in the noise: it is at least `low`."""
    low: NonNegativeFloat
    high: NonNegativeFloat | None = None
    """Mean of the noise scales' lower and upper ends; None where they are not bounded."""
    growth: tuple[NoisePoint, ...]
