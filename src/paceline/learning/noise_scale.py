"""The gradient noise scale, from the gradient norms of the parts of batches.

Let the gradient of one sample have the mean G and the covariance S. The noise scale tr(S) / |G|^2
is the batch whose gradient has as much noise as signal: far below it, twice the batch halves the
steps; far above it, twice the batch saves nothing (McCandlish et al., An empirical model of
large-batch training, 2018, appendix A). A single step measures tr(S) well and |G|^2 badly, often
as a negative number. So both are averaged over many steps before they are divided.
"""

import math
from collections.abc import Iterable
from typing import TypeVar

from pydantic import NonNegativeFloat, NonNegativeInt

from paceline.specs.base import Spec

CONFIDENCE = 0.9
MOST_SAMPLES = 1e15
"""No training has more, so that a larger noise scale is no number but a lower bound."""

Number = TypeVar("Number")
"""A float, or a tensor that nobody reads yet."""


def variance_and_signal(
    mean_square: Number, squared_mean: Number, parts: int, weight: float
) -> tuple[Number, Number]:
    """Return estimates of tr(S) and |G|^2 without bias, from one batch of independent parts.

    `mean_square`: mean of the parts' squared gradient norms, by weight. `squared_mean`: squared
    norm of the batch's gradient. `weight`: that of the batch, in samples. The parts may differ in
    weight: a part of weight w has the squared norm |G|^2 + tr(S) / w on average.
    """
    variance = (mean_square - squared_mean) * weight / (parts - 1)  # type: ignore[operator]
    return variance, squared_mean - variance / weight


def momentum_share(momentum: float, steps: int) -> float:
    """Return how much of the noise of `steps` gradients is in the change that they make.

    With momentum, a part of the noise of the last gradients comes later, and that of gradients
    before comes now. Their signal does not depend on it: the noise of sums does.
    """
    if not momentum:
        return 1.0
    lost = 2 * momentum * (1 - momentum**steps) / (steps * (1 - momentum**2))
    return 1.0 - lost


class NoiseScale(Spec):
    """A noise scale in samples, with its 90 % interval."""

    value: NonNegativeFloat | None = None
    """None where the signal is lost in the noise."""
    low: NonNegativeFloat = 0.0
    high: NonNegativeFloat | None = None
    """None where the steps do not bound it: it is at least `low`."""


class NoiseSums(Spec):
    """Sums over steps from which the noise scale of all of them follows; sums of windows add up."""

    steps: NonNegativeInt = 0
    samples: NonNegativeFloat = 0.0
    """Samples in the batches of these steps; with a weight function, their weight."""
    variance: float = 0.0
    signal: float = 0.0
    variance_squares: float = 0.0
    signal_squares: float = 0.0
    products: float = 0.0
    """Sum of variance x signal."""

    def __add__(self, other: "NoiseSums") -> "NoiseSums":
        added = {
            name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields
        }
        return NoiseSums(**added)

    @classmethod
    def of(cls, steps: Iterable[tuple[float, float, float]]) -> "NoiseSums":
        """Return the sums over steps, each with its samples, variance and signal."""
        rows = list(steps)
        return cls(
            steps=len(rows),
            samples=math.fsum(samples for samples, _, _ in rows),
            variance=math.fsum(variance for _, variance, _ in rows),
            signal=math.fsum(signal for _, _, signal in rows),
            variance_squares=math.fsum(variance * variance for _, variance, _ in rows),
            signal_squares=math.fsum(signal * signal for _, _, signal in rows),
            products=math.fsum(variance * signal for _, variance, signal in rows),
        )

    def scale(self) -> NoiseScale:
        """Return the noise scale over these steps.

        Fieller's interval, of the inverse |G|^2 / tr(S): its denominator is the number that is
        well known, so it stays bounded where |G|^2 may be zero.
        """
        from scipy.special import stdtrit  # noqa: PLC0415 -- every training would load it

        if self.steps < 2:
            return NoiseScale()
        count = self.steps
        variance, signal = self.variance / count, self.signal / count
        student = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
        quantile = student**2 / (count - 1)
        a = variance**2 - quantile * (self.variance_squares / count - variance**2)
        b = variance * signal - quantile * (self.products / count - variance * signal)
        c = signal**2 - quantile * (self.signal_squares / count - signal**2)
        if variance <= 0 or a <= 0:
            return NoiseScale()
        half = math.sqrt(max(0.0, b * b - a * c))
        low, high = (b - half) / a, (b + half) / a
        return NoiseScale(
            value=_scale(variance, signal),
            low=_scale(1, high) or (MOST_SAMPLES if high > 0 else 0.0),
            high=_scale(1, low),
        )


def _scale(variance: float, signal: float) -> float | None:
    return variance / signal if signal * MOST_SAMPLES > variance else None
