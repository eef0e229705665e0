"""What a site asks a job to name, beside nodes, time and memory."""

from pydantic import field_validator

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError


class Allocation(Spec):
    """Names and conditions under which a scheduler gives a job its nodes; None: the site's."""

    account: str | None = None
    """The project that pays."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features that the nodes must have."""
    reservation: str | None = None
    gres: str | None = None
    """Generic resources per node."""
    licenses: str | None = None
    exclusive: bool = False
    """Whether no other job shares the nodes."""
    dependency: str | None = None
    """Jobs that must have ended, and how."""
    begin: str | None = None
    """When the job may start."""
    mail: str | None = None
    """Address that hears of its start, end and failure."""
    options: tuple[str, ...] = ()
    """Other options, as the scheduler's own commands take them."""

    @field_validator("options")
    @classmethod
    def _are_options(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("-"):
                raise PacelineError(
                    f"--scheduler-option {option} is not an option of the scheduler",
                    fix="write it as for the scheduler's own command, with an equals sign:"
                    ' --scheduler-option "--comment=trial 3"',
                )
        return options

    def for_another_job(self) -> "Allocation":
        """Return the same for the next job of a run, without what was about the first one's
        start."""
        return self.model_copy(update={"dependency": None, "begin": None})

    @property
    def given(self) -> list[str]:
        """Names of the fields that were set."""
        return [name for name in type(self).model_fields if getattr(self, name)]
