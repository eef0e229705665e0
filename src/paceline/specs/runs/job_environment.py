"""The shell environment of a job on its nodes."""

import re
from typing import TypeVar

from pydantic import Field, field_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError

Names = TypeVar("Names", dict[str, str], tuple[str, ...])


class JobEnvironment(Spec):
    """Shell lines before and after the workers, and the variables that they see."""

    setup: tuple[str, ...] = ()
    """Shell lines before the workers start, such as `module load cuda`; one that fails ends the
    job."""
    teardown: tuple[str, ...] = ()
    """Shell lines after the workers have ended, however they ended."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Variables to set, after the setup."""
    keep: tuple[str, ...] = ()
    """Variables of the submitting shell that the job gets; empty: as the scheduler does it."""

    @field_validator("variables", "keep")
    @classmethod
    def _have_names(cls, found: Names) -> Names:
        for name in found:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise PacelineError(
                    f"{name!r} is not the name of an environment variable",
                    fix="write --env NAME=VALUE and --keep-env NAME, with letters, digits and _",
                )
        return found
