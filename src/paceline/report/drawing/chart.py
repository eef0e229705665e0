"""A chart: a Vega-Lite specification with its words, and the style that all charts share."""

from dataclasses import dataclass
from typing import Any

# Okabe-Ito, of which each has at least 3 : 1 contrast on white and on our dark ground.
BLUE, GREEN, VERMILION = "#0072B2", "#009E73", "#D55E00"
# The same without black and yellow, which one of the grounds swallows.
FAMILY_COLORS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
HEIGHT_PIXELS = 240


@dataclass(frozen=True)
class Picture:
    """One picture with its words."""

    key: str
    title: str
    caption: str
    """What is drawn, and what is left out."""
    label: str
    """What the picture shows, for who can't see it."""
    spec: dict[str, Any]


def finish(chart: Any, label: str) -> dict[str, Any]:
    """A chart as a specification in the page's style."""
    # currentColor lets one picture fit light, dark and print; a saved picture gets black.
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
        .to_dict()
    )
    # The address of the schema is of no use offline.
    spec.pop("$schema", None)
    return spec
