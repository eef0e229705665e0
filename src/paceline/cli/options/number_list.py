"""Large numbers and lists of numbers on the command line."""

import re
from decimal import Decimal

from paceline.specs import PacelineError

_NUMBER = re.compile(r"0*[1-9][0-9]{0,17}")
"""A positive number of at most 18 digits: no machine has more nodes or workers."""
_LARGE = re.compile(r"(\d{1,18}(?:\.\d{1,12})?)([kKMBT]?)")
_SCALES = {"": 0, "k": 3, "K": 3, "M": 6, "B": 9, "T": 12}
"""Powers of ten."""


def large_number(option: str, text: str) -> int:
    """Return a positive number such as `15T`, `1.5B`, `20M` or `4096`."""
    found = _LARGE.fullmatch(text.strip())
    number = int(Decimal(found[1]).scaleb(_SCALES[found[2]])) if found else 0
    if not number:
        raise PacelineError(
            f"{option} {text} is not a number above 0",
            fix=f"write {option} 15T, {option} 1.5B or {option} 20M",
        )
    return number


def number_list(option: str, text: str) -> list[int]:
    """Return the numbers of `1,2,4`, sorted and without duplicates."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise PacelineError(
            f"{option} {text} is not a list of numbers",
            fix=f"write {option} 8, or {option} 1,2,4,8",
        )
    return sorted({int(part) for part in parts})
