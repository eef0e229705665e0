"""`sparseloco`: local steps, then the largest changes in two bits (arXiv 2508.15706)."""

from typing import Literal

from pydantic import Field

from paceline.sync.compression import Compress
from paceline.sync.modes._local_steps import LocalSteps


class SparseLoCo(LocalSteps):
    """Replicas take local steps and average their largest changes, with error feedback."""

    mode: Literal["sparseloco"] = "sparseloco"
    compress: Compress = "topk2"
    """How changes are compressed."""
    keep: float = Field(default=1 / 64, gt=0, le=0.5)
    """Fraction of the changes that are sent."""
    feedback: float = Field(default=0.95, ge=0, le=1)
    """Fraction of the compression error that is added to the next message."""
    outer_rate: float = Field(default=1.0, gt=0)
    """Learning rate of the outer optimizer."""
    outer_momentum: float = Field(default=0.0, ge=0, lt=1)
    """Nesterov momentum of the outer optimizer."""

    @property
    def outer(self) -> tuple[float, float]:
        """Learning rate and Nesterov momentum of the outer optimizer."""
        return self.outer_rate, self.outer_momentum

    @property
    def title(self) -> str:
        """The name of this mode in tables."""
        return "SparseLoCo"

    @property
    def words(self) -> str:
        """A phrase that describes the mode."""
        return f"an outer step with the largest changes of their weights{self._rhythm}"


MODE = SparseLoCo()
