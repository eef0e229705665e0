"""Times and amounts of memory, as users and schedulers write them."""

import re

from paceline.specs import PacelineError


def minutes_of(text: str) -> int | None:
    """Return the minutes of 90, 1:30:00 or 2-12 (days-hours); None for no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE", "NONE"):
        return None
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text)
    if match is None:
        raise PacelineError(
            f"{text!r} is not a time",
            fix="write minutes (90), hours:minutes:seconds (1:30:00) or days-hours (2-12)",
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours = 0
        minutes, seconds = [*numbers, 0][:2]
    return int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0)


def megabytes_of(text: str) -> int:
    """Return the megabytes of 512M, 4G or 1T; a bare number is megabytes."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.upper())
    if match is None or int(match[1]) == 0:
        raise PacelineError(f"{text!r} is not an amount of memory", fix="write 512M, 4G or 1T")
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match[2]]
    return max(1, int(int(match[1]) * factor))
