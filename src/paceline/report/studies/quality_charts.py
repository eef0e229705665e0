"""The charts of a quality study: differences relative to the margin, and loss over samples."""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from paceline.report.drawing.chart import (
    BLUE,
    FAMILY_COLORS,
    GREEN,
    HEIGHT_PIXELS,
    VERMILION,
    Chart,
    finish,
)
from paceline.report.studies.quality_words import difference, said
from paceline.report.studies.study_tables import point_names
from paceline.specs import Comparison, Quality, StudyResult, Verdict, units

MOST_MEASURES = 4
MOST_POINTS = 40
"""Maximum number of rows in a chart of differences."""
ROW_PIXELS = 40
DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4], [1, 2])
LONG_CURVE = 20
"""Use a logarithmic scale if the highest mean loss is over this many times the lowest."""
GREY = "#8A8A8A"
LOOKS: dict[Verdict, tuple[str, str]] = {
    "same": (GREEN, "circle"),
    "worse": (VERMILION, "triangle-right"),
    "better": (BLUE, "triangle-left"),
    "higher": (BLUE, "triangle-right"),
    "lower": (VERMILION, "triangle-left"),
    "unknown": (GREY, "diamond"),
    "failed": (GREY, "cross"),
}
TICK_WORDS = "datum.value == 0 ? '0' : format(datum.value, '+.2~%')"
Rows = list[dict[str, Any]]


def quality_pictures(result: StudyResult, altair: ModuleType) -> list[Chart]:
    """Return a chart of differences per measure, loss first, with the loss curves second."""
    quality = result.quality
    assert quality
    names = point_names([each.point for each in result.points])
    measures = list(
        dict.fromkeys(one.measure for each in quality.points for one in each.comparisons)
    )
    differences = [
        _differences(measure, number, names, quality, altair)
        for number, measure in enumerate(measures[:MOST_MEASURES])
    ]
    left_out = len(measures) - MOST_MEASURES
    if left_out > 0:
        last = differences[-1]
        more = f" {units.count(left_out, 'other measure')} in the table only."
        differences[-1] = Chart(last.key, last.title, last.caption + more, last.label, last.spec)
    return [*differences[:1], *_curves(names, quality, altair), *differences[1:]]


def _differences(
    measure: str, number: int, names: Sequence[str], quality: Quality, altair: ModuleType
) -> Chart:
    found = [
        (name, one)
        for name, each in zip(names, quality.points, strict=True)
        for one in each.comparisons
        if one.measure == measure
    ]
    base = names[quality.base]
    rows = [_row(name, one) for name, one in found[:MOST_POINTS]]
    farthest = max(abs(row[end]) for row in rows for end in ("value", "low", "high"))
    # Linear within the margin and logarithmic beyond, so that both ranges stay readable.
    margin = quality.margin
    edge = 1.3 * max(farthest, 2 * margin)
    ticks = _ticks(margin, edge)
    x_scale = altair.Scale(type="symlog", constant=margin, domain=[-edge, edge], nice=False)
    axis = altair.Axis(values=ticks, tickCount=len(ticks), labelExpr=TICK_WORDS)
    title = f"Difference, relative to the {measure} of {base}"

    def x(field: str) -> Any:
        return altair.X(f"{field}:Q", title=title, scale=x_scale, axis=axis)

    above = altair.Axis(
        labelAlign="left", labelOffset=-14, labelPadding=0, labelLimit=300, ticks=False
    )
    y = altair.Y("point:N", title=None, sort=None, axis=above)
    verdicts = list(dict.fromkeys(one.verdict for _, one in found))
    looks = [LOOKS[each] for each in verdicts]
    legend = altair.Legend(orient="top", labelColor="currentColor")
    color = altair.Color("verdict:N", title=None, legend=legend).scale(
        domain=verdicts, range=[look[0] for look in looks]
    )
    shape = altair.Shape("verdict:N", title=None, legend=legend).scale(
        domain=verdicts, range=[look[1] for look in looks]
    )
    data = altair.Chart(altair.Data(values=rows))
    band = altair.Chart(altair.Data(values=[{"low": -margin, "high": margin}]))
    said_of = {"point": "on", "said": measure, "difference": "difference", "seeds": "seeds"}
    tooltip = [altair.Tooltip(f"{key}:N", title=title) for key, title in said_of.items()]
    chart = altair.layer(
        band.mark_rect(color="currentColor", opacity=0.12).encode(x=x("low"), x2="high"),
        data.mark_rule(strokeWidth=2, yOffset=8).encode(
            x=x("low"), x2="high", y=y, color=color, tooltip=tooltip
        ),
        data.mark_point(filled=True, size=90, opacity=1, yOffset=8).encode(
            x=x("value"), y=y, color=color, shape=shape, tooltip=tooltip
        ),
    ).properties(width="container", height=ROW_PIXELS * len(rows))
    caption = (
        f"Mean over the seeds, with its 95 % interval; shaded: the margin of ±"
        f"{units.percent(margin)}. Linear within it, logarithmic beyond."
    )
    if len(found) > len(rows):
        caption += f" Drawn: the first {len(rows)} of {len(found):,} points."
    label = f"{measure.capitalize()}: how much each point differs from {base}"
    title_words = f"{measure.capitalize()} relative to {base}"
    key = "differences" if number == 0 else f"differences-{number}"
    return Chart(key, title_words, caption, label, finish(chart, label))


def _row(name: str, one: Comparison) -> dict[str, Any]:
    by = abs(one.base.value) or 1.0
    found = one.difference
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    return {
        "point": name,
        "verdict": one.verdict,
        "value": _short(found.value / by),
        "low": _short(low / by),
        "high": _short(high / by),
        "said": said(one),
        "difference": difference(found),
        "seeds": one.seeds,
    }


def _ticks(margin: float, edge: float) -> list[float]:
    """Return ticks at 0, ±margin, and ±margin times powers of ten up to the edge."""
    beyond = range(math.floor(math.log10(edge / margin)) + 1)
    sizes = [_short(margin * 10.0**power) for power in beyond]
    return [*(-each for each in sizes[::-1]), 0.0, *sizes]


def _curves(names: Sequence[str], quality: Quality, altair: ModuleType) -> list[Chart]:
    """Chart the loss curves: the base first, then others until the colors run out."""
    order = [quality.base, *(n for n in range(len(names)) if n != quality.base)]
    known = [(names[number], quality.points[number]) for number in order]
    known = [(name, each) for name, each in known if each.curve]
    shown = known[: len(FAMILY_COLORS)]
    rows: Rows = [
        {
            "point": name,
            "samples": one.samples,
            **{key: _short(getattr(one, key)) for key in ("mean", "low", "high")},
        }
        for name, each in shown
        for one in each.curve
        if math.isfinite(one.mean)
    ]
    if not rows:
        return []
    means = [row["mean"] for row in rows]
    log = min(row["low"] for row in rows) > 0 and max(means) > LONG_CURVE * min(means)
    scale = altair.Scale(type="log", nice=False) if log else altair.Scale(zero=False)

    def y(field: str) -> Any:
        return altair.Y(f"{field}:Q", title="Loss", scale=scale)

    domain = [name for name, _ in shown]
    legend = altair.Legend(
        orient="top",
        columns=1,
        labelColor="currentColor",
        labelLimit=300,
        symbolType="stroke",
        symbolOpacity=1,
        symbolSize=400,
    )
    color = altair.Color("point:N", title=None, legend=legend, sort=None).scale(
        domain=domain, range=list(FAMILY_COLORS[: len(domain)])
    )
    dash = altair.StrokeDash("point:N", title=None, legend=legend, sort=None).scale(
        domain=domain, range=list(DASHES[: len(domain)])
    )
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("samples:Q", title="Samples").axis(format="~s"), color=color
    )
    tooltip = [
        altair.Tooltip("point:N", title="on"),
        altair.Tooltip("samples:Q", title="samples so far", format=",d"),
        altair.Tooltip("mean:Q", title="mean loss", format=".4~g"),
        altair.Tooltip("low:Q", title="lowest seed", format=".4~g"),
        altair.Tooltip("high:Q", title="highest seed", format=".4~g"),
    ]
    chart = altair.layer(
        base.mark_area(opacity=0.18).encode(y=y("low"), y2="high"),
        base.mark_line(strokeWidth=2).encode(y=y("mean"), strokeDash=dash, tooltip=tooltip),
    ).properties(width="container", height=HEIGHT_PIXELS)
    caption = (
        "Training loss. Line: mean over the seeds; band: from the lowest to the highest seed."
        f"{' Logarithmic.' * log} Each curve has at most 100 points, means of successive steps."
    )
    if len(shown) < len(known):
        caption += f" Drawn: {len(shown)} of {len(known):,} points."
    label = "Lines of the loss over the samples, one for each point"
    return [Chart("curves", "Loss over samples", caption, label, finish(chart, label))]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
