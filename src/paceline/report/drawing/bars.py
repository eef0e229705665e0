"""Bars that have their names above them: beside them, names would leave no room on a phone."""

from types import ModuleType
from typing import Any

NAMED_BAR_PIXELS = 36


def named_bars(chart: Any, name: str, number: int, altair: ModuleType) -> Any:
    """A chart's rows as so many bars, one for each value of the field `name`, in their order."""
    above = altair.Axis(
        labelAlign="left", labelOffset=-8, labelPadding=0, labelLimit=300, ticks=False
    )
    return (
        chart.mark_bar(height=14, yOffset=7)
        .encode(y=altair.Y(f"{name}:N", title=None, sort=None, axis=above))
        .properties(width="container", height=NAMED_BAR_PIXELS * number)
    )
