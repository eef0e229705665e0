"""Lists of numbers on the command line."""

import re

from paceline.specs import PacelineError

_NUMBER = re.compile(r"0*[1-9][0-9]{0,17}")
"""A positive number of at most 18 digits: no machine has more nodes or workers."""


def number_list(option: str, text: str) -> list[int]:
    """Return the numbers of `1,2,4`, sorted and without duplicates."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise PacelineError(
            f"{option} {text} is not a list of numbers",
            fix=f"write {option} 8, or {option} 1,2,4,8",
        )
    return sorted({int(part) for part in parts})
