"""`diloco`: local steps, then an outer step with Nesterov momentum (DiLoCo, arXiv 2311.08105)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from paceline.sync.modes._local_steps import CANDIDATE_STEPS, OuterSteps

CANDIDATE_MOMENTUM = 0.5
"""With it, two workers of the byte-level GPT (0.14 M parameters, 16 local steps, two seeds) reach a
loss of 2.10 in 320 steps; with 0.9 and without momentum, 2.14; with an all-reduce, 2.05."""


class DiLoCo(OuterSteps):
    """Replicas take local steps; their mean change is a step of an outer optimizer."""

    mode: Literal["diloco"] = "diloco"
    outer_rate: float = Field(default=0.7, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float = Field(default=0.9, ge=0, lt=1)
    """Nesterov momentum of the outer optimizer."""

    @property
    def title(self) -> str:
        """The name of this mode in tables."""
        return f"DiLoCo{self._in_compression}"

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"an outer step with the mean change of their weights{self._rhythm}"

    def candidates(self) -> Iterator["DiLoCo"]:
        """Yield rounds in int8 that overlap an eighth of the steps."""
        for every in CANDIDATE_STEPS:
            yield DiLoCo(
                every=every,
                overlap=every // 8,
                compress="int8",
                outer_momentum=CANDIDATE_MOMENTUM,
            )


MODE = DiLoCo()
