"""What every event of a run carries."""

from typing import Annotated

from pydantic import Field

from paceline.specs.base import Spec

Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A number that can be reckoned with: what stands in a file may have any number of digits."""
Seconds = Annotated[float, Field(ge=-1e11, le=1e11)]
"""A time that can be told in words: no infinite one, nor what is no number."""


class Event(Spec):
    """What every event carries."""

    time: float = Field(ge=0, lt=253402300800)  # the year 10000
    """Unix seconds, by the clock of the node that wrote it."""
    node: str
    generation: Whole = 0
    """0 for the first workers of a run; one more when others take their place, because the run was
    started again or because those that were left have regrouped."""
