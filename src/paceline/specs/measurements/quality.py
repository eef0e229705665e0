"""Result of a quality study: how well a training learns on several workers, compared with one."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from paceline.specs.base import Spec
from paceline.specs.interval import Interval

Verdict = Literal["same", "worse", "better", "higher", "lower", "unknown", "failed"]
"""For a loss, `worse` is higher. For a metric, it is not known whether more is better.
`unknown`: too few seeds. `failed`: a run failed, and the remaining runs alone would be biased."""
LOSS = "loss"
EVALUATED_LOSS = "evaluated loss"
LOSSES = (LOSS, EVALUATED_LOSS)


class RunQuality(Spec):
    """The quality of one run."""

    run: str
    """The run's folder, relative to the study's."""
    seed_plus: NonNegativeInt
    """Offset added to the training's seed."""
    samples: NonNegativeInt
    """Samples that the run trained on."""
    values: dict[str, float]
    """`loss`: mean training loss over the last tenth of the samples. `evaluated loss` and
    metrics: from the last `trainer.evaluate`."""


class Comparison(Spec):
    """One measure of one point compared with the base, seed by seed."""

    measure: str
    value: Interval
    """Mean over the seeds, with its 95 % interval."""
    base: Interval
    difference: Interval
    """Mean of this value minus the base's over the common seeds, with its 95 % interval."""
    within: Interval
    """The same with the interval that must lie inside the margin: of 90 %, as two one-sided tests
    at 5 % ask for, or of more where several comparisons share the 5 %."""
    margin: NonNegativeFloat
    """Margin in units of the measure."""
    seeds: NonNegativeInt
    """Number of common seeds."""
    spread: NonNegativeFloat | None = None
    """Standard deviation of the differences by seed; None for one seed."""
    seeds_needed: PositiveInt | None = None
    """Seeds with which a setting that learns as well would be found the same, four times in five;
    None if unknown, or beyond a thousand."""
    verdict: Verdict


class CurvePoint(Spec):
    """An interval of steps, over all runs of a point."""

    samples: NonNegativeInt
    """Samples trained on at its end."""
    mean: float
    """Mean loss over the seeds."""
    low: float
    """Lowest loss of a seed."""
    high: float


class PointQuality(Spec):
    """The quality of one point, compared with the base."""

    runs: tuple[RunQuality, ...]
    curve: tuple[CurvePoint, ...]
    """Loss over samples."""
    comparisons: tuple[Comparison, ...]
    """Empty for the base itself."""


class Quality(Spec):
    """All points of a study, in its order."""

    base: NonNegativeInt
    """Index of the point that the others are compared with."""
    margin: PositiveFloat
    """Largest difference that counts as equal, relative to the base's value."""
    points: tuple[PointQuality, ...]

    @property
    def of_base(self) -> dict[str, Interval]:
        """Return the base's values by measure, from the comparisons."""
        held = next((each.comparisons for each in self.points if each.comparisons), ())
        return {each.measure: each.base for each in held}
