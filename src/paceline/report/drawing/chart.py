"""A chart: a Vega-Lite specification with its texts, and the style that all charts share."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from paceline.specs import PacelineError

# Okabe-Ito; each has a contrast of at least 3 : 1 on the light and on the dark background.
BLUE, GREEN, VERMILION = "#0072B2", "#009E73", "#D55E00"
# The same without black and yellow, which are invisible on one of the backgrounds.
FAMILY_COLORS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
HEIGHT_PIXELS = 240
NAMED_BAR_PIXELS = 36
MOST_LETTERS_BESIDE = 10
"""Of a name in a legend of several columns."""


@dataclass(frozen=True)
class Chart:
    """One chart with its texts."""

    key: str
    title: str
    caption: str
    """A description of the chart's contents and omissions."""
    label: str
    """A description for screen readers."""
    spec: dict[str, Any]


def drawing_packages() -> tuple[ModuleType, ModuleType]:
    """Import Altair and vl-convert, which are an extra and take a while to load."""
    try:
        import altair  # noqa: PLC0415
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise PacelineError(
            f"charts need Altair and vl-convert: {error}",
            fix='pip install "paceline[report]"',
        ) from None
    return altair, vl_convert


def named_bars(chart: Any, name: str, number: int, altair: ModuleType) -> Any:
    """Draw a chart's rows as `number` bars, each with its value of the field `name` above it.

    Names beside the bars would leave no room on a phone.
    """
    above = altair.Axis(
        labelAlign="left", labelOffset=-8, labelPadding=0, labelLimit=300, ticks=False
    )
    return (
        chart.mark_bar(height=14, yOffset=7)
        .encode(y=altair.Y(f"{name}:N", title=None, sort=None, axis=above))
        .properties(width="container", height=NAMED_BAR_PIXELS * number)
    )


def legend_columns(names: Sequence[str]) -> int:
    """Return the columns of a legend: long names beside each other are wider than a phone."""
    return 3 if max(map(len, names)) <= MOST_LETTERS_BESIDE else 1


def finish(chart: Any, label: str) -> dict[str, Any]:
    """Return a chart as a specification in the page's style."""
    # currentColor lets one chart fit light, dark and print; a saved chart gets black.
    spec: dict[str, Any] = (
        chart.properties(background="transparent", description=label)
        .configure(font="system-ui, sans-serif", autosize={"type": "fit-x", "contains": "padding"})
        .configure_view(stroke=None)
        .configure_axis(
            labelColor="currentColor",
            titleColor="currentColor",
            domainColor="currentColor",
            tickColor="currentColor",
            gridColor="currentColor",
            gridOpacity=0.15,
            domainOpacity=0.5,
            tickOpacity=0.5,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
        )
        .configure_axisX(labelFlush=True, grid=False, labelOverlap=True, tickCount=6)
        .configure_axisY(tickCount=5, domain=False)
        .configure_legend(labelFontSize=12)
        .to_dict()
    )
    # The URL of the schema is of no use offline.
    spec.pop("$schema", None)
    return spec
