"""The chart of a plan: samples/s over nodes, with the prediction interval.

It is written as SVG directly: loading the packages for the charts of reports takes longer than
the whole plan.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.specs import Answer

BLUE, VERMILION = "#0072B2", "#D55E00"
"""Colors of Okabe and Ito, as in the reports."""
WIDTH_PIXELS, HEIGHT_PIXELS = 560, 240
LEFT, TOP, RIGHT, BOTTOM = 80, 50, 20, 45
"""Margins in pixels, with the texts."""
MOST_TICKS = 8
DIGIT_PIXELS = 8


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis from a value to a pixel."""

    low: float
    high: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], begin: float, end: float) -> "_Axis":
        """Return an axis with room for all values; a single one is in the middle."""
        found = list(values)
        low, high = min(found), max(found)
        return cls(low, high, begin, end) if high > low else cls(low / 2, 2 * high, begin, end)

    def at(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        """Return 1, 2 and 5 times powers of ten, or only powers if these are too many."""
        for digits in ((1, 2, 5), (1,)):
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = [digit * 10.0**power for power in powers for digit in digits]
            found = [each for each in steps if self.low <= each <= self.high]
            if 2 <= len(found) <= MOST_TICKS:
                return found
        return found[:: 1 + len(found) // MOST_TICKS] or [math.sqrt(self.low * self.high)]


def scaling_picture(said: "Answer") -> str:
    """Return an SVG of predicted throughput, its interval, and ideal scaling."""
    nodes = [float(point.nodes) for point in said.curve]
    predicted = [point.samples_per_second for point in said.curve]
    low = [point.batch / point.step_seconds.high for point in said.curve]
    high = [point.batch / point.step_seconds.low for point in said.curve]
    ideal = [predicted[0] / nodes[0] * each for each in nodes]
    right, bottom = LEFT + WIDTH_PIXELS, TOP + HEIGHT_PIXELS
    across = _Axis.over(nodes, LEFT, right)
    up = _Axis.over([*low, *high, *ideal], bottom, TOP)

    def line(values: Iterable[float]) -> list[str]:
        return [f"{across.at(x)},{up.at(y)}" for x, y in zip(nodes, values, strict=True)]

    band = [*line(low), *reversed(line(high))]
    chosen = {point.nodes: point.samples_per_second for point in said.curve}[said.nodes]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + RIGHT}"'
            f' height="{bottom + BOTTOM}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            _text(LEFT, 18, f"{said.model}, batch {said.batch:,}", 'font-weight="bold"'),
            _text(
                LEFT, 34, "predicted; band: nine of ten within; dashed: ideal; red: the plan", ""
            ),
            *_ticks(across, up, nodes),
            f'<polygon points="{" ".join(band)}" fill="{BLUE}" opacity="0.2"/>',
            f'<polyline points="{" ".join(line(ideal))}" fill="none" stroke="gray"'
            ' stroke-dasharray="4 4"/>',
            f'<polyline points="{" ".join(line(predicted))}" fill="none" stroke="{BLUE}"'
            ' stroke-width="2"/>',
            *(_dot(across.at(x), up.at(y), 4, BLUE) for x, y in zip(nodes, predicted, strict=True)),
            _dot(across.at(said.nodes), up.at(chosen), 7, VERMILION),
            "</svg>\n",
        ]
    )


def _ticks(across: _Axis, up: _Axis, nodes: Iterable[float]) -> list[str]:
    """Return both axes with their titles; numbers of nodes too close to the last are left out."""
    found = [
        f'<path d="M{LEFT},{TOP}V{up.begin}H{across.end}" fill="none" stroke="gray"/>',
        _text((across.begin + across.end) / 2, up.begin + 36, "nodes", 'text-anchor="middle"'),
        _text(
            *(16, (up.begin + up.end) / 2, "samples per second"),
            f'text-anchor="middle" transform="rotate(-90 16 {(up.begin + up.end) / 2})"',
        ),
    ]
    last = -math.inf
    for each in nodes:
        place, shown = across.at(each), f"{each:,.0f}"
        if place - last > DIGIT_PIXELS * len(shown):
            found.append(_text(place, up.begin + 16, shown, 'text-anchor="middle"'))
            last = place
    for each in up.ticks():
        place = up.at(each)
        found.append(f'<path d="M{LEFT},{place}H{across.end}" stroke="lightgray"/>')
        found.append(_text(LEFT - 6, place + 4, f"{each:,.3g}", 'text-anchor="end"'))
    return found


def _text(x: float, y: float, said: str, more: str) -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(said)}</text>'


def _dot(x: float, y: float, radius: float, color: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{color}"/>'
