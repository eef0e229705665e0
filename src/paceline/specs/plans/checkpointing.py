"""What of a run is kept, how often, and where."""

import re
from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError


class Best(NamedTuple):
    """A figure by which one checkpoint is better than another."""

    sense: Literal["min", "max"]
    metric: str


class Saving(Spec):
    """When a run's state is saved, and which checkpoints stay."""

    every_steps: int | None = Field(default=None, ge=0)
    """Steps between two checkpoints; by the clock where unset, and never with 0."""
    every_minutes: float = Field(default=10.0, gt=0)
    """Minutes between two checkpoints, where `every_steps` is unset."""
    keep_last: int = Field(default=2, ge=1)
    """The newest checkpoints stay: two, so that a damaged one has another behind it."""
    keep_every: int | None = Field(default=None, ge=1)
    """Checkpoints at multiples of this number of steps stay for good."""
    keep_best: str | None = None
    """The best checkpoint by a figure of `trainer.evaluate` stays: "min loss", "max accuracy"."""
    folder: str | None = None
    """Where checkpoints go, each run's under its name: a folder that all nodes share, or a URL such
    as s3://bucket/path; the run's own folder where unset."""
    ledger: bool = False
    """Write down which samples entered every step."""

    @field_validator("keep_best")
    @classmethod
    def _check_best(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(min|max) \S+", value):
            raise PacelineError(
                f"keep_best is {value!r}, which does not say which figure, and whether less is"
                " better",
                fix='write "min loss" or "max accuracy", with a figure of trainer.evaluate',
            )
        return value

    @property
    def best(self) -> Best | None:
        """The figure of `keep_best`, read."""
        if self.keep_best is None:
            return None
        sense, metric = self.keep_best.split()
        return Best("min" if sense == "min" else "max", metric)
