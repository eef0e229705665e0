"""How large a batch a training can use, as measured: `learning.toml`."""

from typing import Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from paceline.specs.base import Spec


class CriticalBatch(Spec):
    """A critical batch in samples, with its interval."""

    value: PositiveFloat | None
    """None where larger batches took no more samples than the spread of the measurements."""
    low: PositiveFloat
    high: PositiveFloat | None
    """None where they do not bound it."""

    @property
    def at_hand(self) -> float:
        """The number to go by: the lower end where nothing better is known."""
        return self.low if self.value is None or self.high is None else self.value

    @classmethod
    def exactly(cls, samples: float) -> "CriticalBatch":
        """Return a critical batch that is known."""
        return cls(value=samples, low=samples, high=samples)


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
    weighted: bool = False
    """Whether the coordinates of gradients were weighted as the optimizer does, such as Adam."""
    critical: PositiveFloat | None = None
    """None where the signal is lost in the noise: it is at least `low`."""
    low: NonNegativeFloat
    high: NonNegativeFloat | None = None
    """Mean of the noise scales' lower and upper ends; None where they are not bounded."""
    growth: tuple[NoisePoint, ...]

    @model_validator(mode="after")
    def _has_ordered_ends(self) -> Self:
        if self.high is not None and self.high < self.low:
            raise ValueError(f"high is {self.high:g}, below low, {self.low:g}")
        return self

    @property
    def critical_batch(self) -> CriticalBatch | None:
        """The critical batch with its interval; None if nothing bounds it."""
        if not self.low:
            return None
        return CriticalBatch(value=self.critical, low=self.low, high=self.high)
