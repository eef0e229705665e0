"""A number with its confidence interval."""

from paceline.specs.base import Spec


class Interval(Spec):
    """A number with its 95 % confidence interval; no interval after a single measurement."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """Half-width of the interval, as printed after ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2
