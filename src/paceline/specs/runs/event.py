"""The fields common to all events of a run."""

from typing import Annotated

from pydantic import Field

from paceline.specs.base import Spec

Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""An integer within ±2^53: one read from a file may have any number of digits."""
Seconds = Annotated[float, Field(ge=-1e11, le=1e11)]
"""A time that can be displayed: finite and not NaN."""


class Event(Spec):
    """The base of all events."""

    time: float = Field(ge=0, lt=253402300800)  # the year 10000
    """Unix seconds, by the clock of the node that wrote the event."""
    node: str
    generation: Whole = 0
    """Membership generation: 0 for the first workers of a run, plus one after each restart or
    regroup."""
