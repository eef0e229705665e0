"""A conformance check, and its result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.conformance.session import Session

State = Literal["passed", "failed", "not resolved", "not applicable"]


@dataclass(frozen=True)
class Outcome:
    """What a check found."""

    state: State
    figure: str
    """The figure in words, for the table."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Numbers for the report; no host names, no paths."""


@dataclass(frozen=True)
class Check:
    """One conformance check; each file of `checks` has one, named `CHECK`."""

    name: str
    about: str
    """What it proves, as a sentence without a period."""
    run: Callable[[Session], Outcome]
    typical_seconds: float
    """For the progress bar."""
    least_workers: int = 1


def passed(figure: str, **figures: Any) -> Outcome:
    """Return the outcome of a check that passed."""
    return Outcome("passed", figure, figures)


def failed(figure: str, **figures: Any) -> Outcome:
    """Return the outcome of a check that failed."""
    return Outcome("failed", figure, figures)


def not_resolved(figure: str, **figures: Any) -> Outcome:
    """Return the outcome of a check whose measurement is too noisy to decide."""
    return Outcome("not resolved", figure, figures)


def not_applicable(why: str) -> Outcome:
    """Return the outcome of a check that cannot apply here."""
    return Outcome("not applicable", why)
