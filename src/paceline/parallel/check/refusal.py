"""Refuse a training whose check found a problem."""

from collections.abc import Iterable

from paceline.specs import PacelineError
from paceline.specs.finding import Finding


def refuse_bad(findings: Iterable[Finding]) -> None:
    """Raise the first problem, and say how many more there are."""
    problems = [each for each in findings if each.state == "bad"]
    if problems:
        first, *others = problems
        more = f" (and {len(others)} more: `paceline check TRAIN`)" if others else ""
        raise PacelineError(
            f"{first.text}{more}", fix=f"{first.fix}; to train it as it is, give --no-check"
        )
