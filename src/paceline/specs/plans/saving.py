"""When a run writes checkpoints, where, and which ones it keeps."""

import re
from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError


class Best(NamedTuple):
    """The metric by which checkpoints are compared."""

    sense: Literal["min", "max"]
    metric: str


class Saving(Spec):
    """When a run saves checkpoints, and which ones it keeps."""

    every_steps: int | None = Field(default=None, ge=0)
    """Steps between checkpoints; None: by `every_minutes`; 0: never."""
    every_minutes: float = Field(default=10.0, gt=0)
    """Minutes between checkpoints, if `every_steps` is None."""
    keep_last: int = Field(default=2, ge=1)
    """Number of newest checkpoints to keep: two, so that a damaged one has a fallback."""
    keep_every: int | None = Field(default=None, ge=1)
    """Keep checkpoints at multiples of this number of steps forever."""
    keep_best: str | None = None
    """Keep the best checkpoint by a metric of `trainer.evaluate`: "min loss", "max accuracy"."""
    folder: str | None = None
    """Parent of the checkpoint folders, which are named after their runs: a folder that all
    nodes share, or a URL such as s3://bucket/path. None: the run's own folder."""
    ledger: bool = False
    """Record the samples of every step in the sample ledger."""

    @field_validator("keep_best")
    @classmethod
    def _check_best(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(min|max) \S+", value):
            raise PacelineError(
                f"keep_best is {value!r}, not min or max and a metric",
                fix='write "min loss" or "max accuracy", with a metric of trainer.evaluate',
            )
        return value

    @property
    def best(self) -> Best | None:
        """The parsed `keep_best`."""
        if self.keep_best is None:
            return None
        sense, metric = self.keep_best.split()
        return Best("min" if sense == "min" else "max", metric)
