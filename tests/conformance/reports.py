"""Reports of `paceline doctor --devices`."""

from typing import Any


def states(report: dict[str, Any]) -> dict[str, str]:
    """Each check's result, in order."""
    return {each["name"]: each["state"] for each in report["checks"]}
