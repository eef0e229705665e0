"""A number with what surrounds it."""

from paceline.specs.base import Spec


class Interval(Spec):
    """A number, and what holds it in 19 of 20 cases; without an interval where there was one
    measurement only."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """What stands behind ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2
