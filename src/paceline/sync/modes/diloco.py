"""`diloco`: local steps, then an outer step with Nesterov momentum (DiLoCo, arXiv 2311.08105)."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from paceline.sync.modes._local_steps import CANDIDATE_STEPS, LocalSteps

ADAPTIVE_MOMENTUM, SGD_MOMENTUM = 0.5, 0.7
"""Outer momentum by the optimizer of the replicas: AdamW and others, and SGD.

With an outer rate of 0.7, these are the best of 0, 0.3, 0.5, 0.7 and 0.9 on 2, 4 and 8 replicas of
two small tasks (`python -m benchmarks.sync.outer_steps`); the paper's 0.9 was worse than averaging
on 2 and 4. With 0.5 and AdamW, two workers of the byte-level GPT (0.14 M parameters, 16 local
steps, two seeds) reach a loss of 2.10 in 320 steps; with 0.9 and without momentum, 2.14; with an
all-reduce, 2.05."""


class DiLoCo(LocalSteps):
    """Replicas take local steps; their mean change is a step of an outer optimizer."""

    mode: Literal["diloco"] = "diloco"
    outer_rate: float = Field(default=0.7, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float | None = Field(default=None, ge=0, lt=1)
    """Nesterov momentum of the outer optimizer; None: by the optimizer of the replicas."""

    @property
    def outer(self) -> tuple[float, float]:
        """Learning rate and Nesterov momentum of the outer optimizer, by default those for Adam."""
        momentum = self.for_optimizer(adaptive=True).outer_momentum
        assert momentum is not None
        return self.outer_rate, momentum

    def for_optimizer(self, *, adaptive: bool) -> Self:
        """Return the settings with a momentum for the optimizer, if none was given."""
        if self.outer_momentum is not None:
            return self
        momentum = ADAPTIVE_MOMENTUM if adaptive else SGD_MOMENTUM
        return self.model_copy(update={"outer_momentum": momentum})

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
            yield DiLoCo(every=every, overlap=every // 8, compress="int8")


MODE = DiLoCo()
