"""Result of a quality study: how well a training learns on several workers, compared with one."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from paceline.specs.base import Spec
from paceline.specs.interval import Interval

Verdict = Literal["same", "worse", "better", "higher", "lower", "unknown", "failed"]
"""Of a loss: `worse` is higher. Of a metric nobody has said whether more is better. `unknown`: too
few seeds to say. `failed`: a run failed, and those that did not would flatter the rest."""
LOSS = "loss"
EVALUATED_LOSS = "evaluated loss"
LOSSES = (LOSS, EVALUATED_LOSS)


class Learned(Spec):
    """The quality of one run."""

    run: str
    """Its folder, below the study's."""
    seed_plus: NonNegativeInt
    """Beyond the training's own seed."""
    samples: NonNegativeInt
    """That it saw."""
    values: dict[str, float]
    """`loss`: the mean over the last tenth of the samples, as they were trained on. `evaluated
    loss` and metrics: those of the last `trainer.evaluate`."""


class Comparison(Spec):
    """One measure of one point compared with the base, seed by seed."""

    measure: str
    value: Interval
    """Mean over the seeds, with its 95 % interval."""
    base: Interval
    difference: Interval
    """Mean of this less the base's over the seeds that both have, with its 95 % interval."""
    within: Interval
    """The same with its 90 % interval, which is inside of the margin where two one-sided tests at
    5 % both say so."""
    margin: NonNegativeFloat
    """In units of the measure."""
    seeds: NonNegativeInt
    """That both have."""
    verdict: Verdict


class Stretch(Spec):
    """Some steps of all runs of a point."""

    samples: NonNegativeInt
    """Seen at its end."""
    mean: float
    """Of the loss, over the seeds."""
    low: float
    """Of the seed that had the lowest."""
    high: float


class LearnedPoint(Spec):
    """The quality of one point, compared with the base."""

    runs: tuple[Learned, ...]
    curve: tuple[Stretch, ...]
    """The loss over the samples."""
    comparisons: tuple[Comparison, ...]
    """None for the base itself."""


class Quality(Spec):
    """All points of a study, in its order."""

    base: NonNegativeInt
    """Index of the point that the others are compared with."""
    margin: PositiveFloat
    """Largest difference that counts as equal, relative to the base's value."""
    points: tuple[LearnedPoint, ...]

    @property
    def of_base(self) -> dict[str, Interval]:
        """Return the base's values by measure, from the comparisons."""
        held = next((each.comparisons for each in self.points if each.comparisons), ())
        return {each.measure: each.base for each in held}
