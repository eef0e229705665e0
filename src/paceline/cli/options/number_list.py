"""Lists of numbers on the command line."""

from paceline.specs import PacelineError


def number_list(option: str, text: str) -> list[int]:
    """Return the numbers of `1,2,4`, sorted and without duplicates."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise PacelineError(
            f"{option} {text} is not a list of numbers",
            fix=f"write {option} 8, or {option} 1,2,4,8",
        )
    return sorted({int(part) for part in parts})
