"""The charts of a scaling study, as Vega-Lite specifications written with Altair."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from types import ModuleType
from typing import Any

from paceline.report.drawing.chart import (
    FAMILY_COLORS,
    HEIGHT_PIXELS,
    Chart,
    finish,
    legend_columns,
)
from paceline.report.reading.failure_cause import plain
from paceline.report.studies.study_tables import (
    between,
    bound_of,
    exact_percent,
    factor,
    point_names,
)
from paceline.specs import Interval, PointResult, StudyResult, units
from paceline.specs.measurements.study import families

MOST_TICKS = 8
MOST_NAMES = 3
# In addition to its color, for grayscale prints.
FAMILY_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
LAWS = {
    "usl": ("solid the Universal Scalability Law", [1, 0]),
    "amdahl": ("dotted Amdahl's law", [2, 3]),
    "gustafson": ("dotted Gustafson's law", [2, 3]),
}
Rows = list[dict[str, Any]]


def over_workers(result: StudyResult, altair: ModuleType) -> list[Chart]:
    """Return speed-up and efficiency charts, and prediction and isoefficiency charts if known."""
    drawing = _drawing(result, altair)
    always = [_speedup(drawing), _efficiency(drawing)]
    return [*always, *_prediction(drawing), *_isoefficiency(drawing)]


@dataclass(frozen=True)
class _Axes:
    """The x axis (workers), and the y axis for a field."""

    x: Any
    y: Callable[[str], Any]  # takes a field name
    floor: float


@dataclass(frozen=True)
class _Drawing:
    """Data and helpers that the charts of a study share."""

    altair: ModuleType
    result: StudyResult
    points: list[tuple[str, str, PointResult]]
    """Name, family and result of each point with finished runs, for the families drawn."""
    families: list[str]
    left_out: str

    def data(self, rows: Rows) -> Any:
        return self.altair.Chart(self.altair.Data(values=rows))

    def axes(self, rows: Rows, title: str, *, percents: bool = False, log: bool = False) -> _Axes:
        """Return axes: workers in powers of two; values in powers of two if `log`, else from 0."""
        alt = self.altair
        x_scale, x_axis, _ = self._octaves([row["workers"] for row in rows])
        x = alt.X("workers:Q", title="Workers", scale=x_scale, axis=x_axis)
        values = [row["value"] for row in rows]
        if log:
            scale, axis, floor = self._octaves(values)
        else:
            # A very wide interval must not flatten the rest of the chart.
            highest = max(*values, *(row.get("high", 0.0) for row in rows))
            floor, top = 0.0, 1.08 * min(highest, 1.5 * max(values))
            scale = alt.Scale(domain=[floor, top], nice=False)
            axis = alt.Axis(format=".0%" if percents else ",~r")
        return _Axes(x, lambda name: alt.Y(f"{name}:Q", title=title, scale=scale, axis=axis), floor)

    def _octaves(self, values: list[float]) -> tuple[Any, Any, float]:
        """Return a scale and axis in powers of two around `values`, and the scale's lower end."""
        first = math.floor(math.log2(min(values)))
        last = max(first + 1, math.ceil(math.log2(max(values))))
        every = math.ceil((last - first) / MOST_TICKS)
        # Leave room for marks at the edges.
        floor = 0.92 * 2.0**first
        scale = self.altair.Scale(type="log", base=2, domain=[floor, 2.0**last / 0.92], nice=False)
        ticks = [2.0**power for power in range(first, last + 1, every)]
        # Without an explicit tickCount, the style's count would drop some ticks.
        axis = self.altair.Axis(values=ticks, tickCount=len(ticks), format=",~r")
        return scale, axis, floor

    def look(self, *, shaped: bool = False) -> dict[str, Any]:
        """Return colors, and shapes for points; add a legend only for several families."""
        alt, names = self.altair, [plain(family) for family in self.families]
        legend = None
        if len(names) > 1:
            shape = {"columns": legend_columns(names), "labelLimit": 220}
            legend = alt.Legend(orient="top", labelColor="currentColor", **shape)

        def by_family(channel: Any, values: tuple[str, ...]) -> Any:
            scale = alt.Scale(domain=names, range=list(values[: len(names)]))
            return channel("family:N", title=None, scale=scale, legend=legend)

        look = {"color": by_family(alt.Color, FAMILY_COLORS)}
        return look | ({"shape": by_family(alt.Shape, FAMILY_SHAPES)} if shaped else {})

    def rows(
        self, of: Callable[[PointResult], Interval | None], say: Callable[[float], str]
    ) -> Rows:
        """Return a row per point: the measurement, and its interval if there is one."""
        rows = []
        for name, family, each in self.points:
            found = of(each)
            assert found is not None
            row = _row(each.point.workers, found.value, family)
            around = between(found, say) or "none"
            row |= {"where": name, "said": say(found.value), "interval": around}
            if found.low is not None and found.high is not None:
                row |= {"low": _short(found.low), "high": _short(found.high)}
            rows.append(row)
        return rows

    def predictions(self, rows: Rows, say: Callable[[float], str]) -> Rows:
        """Return the given rows with the planner's prediction in place of the measurement."""
        found = []
        for row, (_, _, each) in zip(rows, self.points, strict=True):
            if each.predicted_samples_per_second and each.samples_per_second:
                ratio = each.predicted_samples_per_second / each.samples_per_second.value
                value = ratio * row["value"]
                found.append({**row, "value": _short(value), "said": say(value), "off": ratio - 1})
        return found

    def measured(self, rows: Rows, axes: _Axes) -> list[Any]:
        """Return layers with points over their interval bars."""
        # A logarithmic axis cannot show values at or below 0.
        bars = [{**row, "low": max(row["low"], axes.floor)} for row in rows if "low" in row]
        upright = self.data(bars).mark_rule(strokeWidth=2, clip=True)
        said = {"said": "measured", "interval": "95 % interval"}
        return [
            *[upright.encode(x=axes.x, y=axes.y("low"), y2="high", **self.look())] * bool(bars),
            self._marks(rows, axes, said, filled=True, size=70),
        ]

    def predicted(self, rows: Rows, axes: _Axes) -> Any:
        """Return a layer of hollow points."""
        said = {"said": "predicted"}
        return self._marks(rows, axes, said, filled=False, size=130, strokeWidth=1.5)

    def _marks(self, rows: Rows, axes: _Axes, said: dict[str, str], **look: Any) -> Any:
        shown = {"where": "on", **said}
        tooltip = [self.altair.Tooltip(f"{key}:N", title=title) for key, title in shown.items()]
        marks = self.data(rows).mark_point(opacity=1, **look)
        return marks.encode(x=axes.x, y=axes.y("value"), tooltip=tooltip, **self.look(shaped=True))

    def lines(self, rows: Rows, axes: _Axes, **look: Any) -> Any:
        """Return a layer of thin lines, one per family."""
        marks = self.data(rows).mark_line(strokeWidth=1.5, clip=True, **look)
        return marks.encode(x=axes.x, y=axes.y("value"), **self.look())

    def picture(self, key: str, title: str, caption: str, label: str, layers: list[Any]) -> Chart:
        """Return a chart of stacked layers with its title and captions."""
        chart = self.altair.layer(*layers).properties(width="container", height=HEIGHT_PIXELS)
        return Chart(key, title, caption + self.left_out, label, finish(chart, label))

    def intervals(self, rows: Rows) -> str:
        """Return the meaning of the bars, or the reason for their absence."""
        single = [len(each.runs) == 1 for *_, each in self.points]
        if not any("low" in row for row in rows):
            return " One run each: no intervals." if all(single) else " No intervals."
        words = " Upright bars: 95 % intervals over the runs, as far as they fit."
        return words + " Points with one run have none." * any(single)


def _drawing(result: StudyResult, altair: ModuleType) -> _Drawing:
    names = point_names([each.point for each in result.points])
    named = dict(zip(map(id, result.points), names, strict=True))
    best = {
        family: max(each.samples_per_second.value for each in members if each.samples_per_second)
        for family, members in families(result.points).items()
    }
    fastest = sorted(best, key=lambda family: -best[family])[: len(FAMILY_COLORS)]
    without = [named[id(each)] for each in result.points if not each.runs]
    left_out = ""
    if len(fastest) < len(best):
        left_out += f" Drawn: the {len(fastest)} fastest of {len(best)} families."
    if without:
        more = f" and {len(without) - MOST_NAMES:,} more" * (len(without) > MOST_NAMES)
        left_out += f" Left out, without a finished run: {'; '.join(without[:MOST_NAMES])}{more}."
    return _Drawing(
        altair,
        result,
        [
            (named[id(each)], family, each)
            for family, members in families(result.points).items()
            for each in members
            if family in fastest
        ],
        [family for family in best if family in fastest],
        left_out,
    )


def _speedup(drawing: _Drawing) -> Chart:
    rows = drawing.rows(lambda each: each.speedup, factor)
    predicted = drawing.predictions(rows, factor)
    curves: dict[str, Rows] = {}
    for law in drawing.result.laws:
        if law.family in drawing.families:
            curves.setdefault(law.name, []).extend(
                _row(workers, value, law.family)
                for workers, value in law.curve
                if 0 < value < math.inf
            )
    measured = [row["workers"] for row in rows]
    reached = measured + [row["workers"] for curve in curves.values() for row in curve]
    ideal = [{"workers": end, "value": end} for end in (min(reached), max(reached))]
    axes = drawing.axes(sum(curves.values(), rows + predicted + ideal), "Speed-up", log=True)
    dashed = drawing.data(ideal).mark_line(color="currentColor", strokeWidth=1, strokeDash=[7, 5])
    caption = f"Filled: measured.{drawing.intervals(rows)} Dashed: ideal"
    caption += f"; on {units.count(min(measured), 'worker')} by definition."
    if predicted:
        caption += " Hollow: predicted, relative to the measured rate of one worker."
    if curves:
        names = " and ".join(LAWS[name][0] for name in curves)
        caption += f" Thin: fitted laws, {names}; extrapolated beyond the last point."
    best = max(rows, key=lambda row: float(row["value"]))
    label = f"Speed-up over the workers, up to {best['said']} on {best['where']}"
    layers = [
        dashed.encode(x=axes.x, y=axes.y("value")),
        *(drawing.lines(curve, axes, strokeDash=LAWS[name][1]) for name, curve in curves.items()),
        *[drawing.predicted(predicted, axes)] * bool(predicted),
        *drawing.measured(rows, axes),
    ]
    return drawing.picture("speedup", "Speed-up", caption, label, layers)


def _efficiency(drawing: _Drawing) -> Chart:
    rows = drawing.rows(lambda each: each.efficiency, exact_percent)
    bound = bound_of(drawing.result)
    axes = drawing.axes([*rows, {**rows[0], "value": 1.0}], "Efficiency", percents=True)
    rule = drawing.data([{"bound": bound}]).mark_rule(color="currentColor", strokeDash=[2, 3])
    joined = drawing.data(rows).mark_line(strokeWidth=1.5)
    caption = (
        f"Speed-up divided by workers.{drawing.intervals(rows)} Dotted: {units.percent(bound)}."
    )
    label = f"Efficiency over the workers, down to {min(row['value'] for row in rows):.0%}"
    layers = [
        rule.encode(y=axes.y("bound")),
        joined.encode(x=axes.x, y=axes.y("mean(value)"), **drawing.look()),
        *drawing.measured(rows, axes),
    ]
    return drawing.picture("efficiency", "Efficiency", caption, label, layers)


def _prediction(drawing: _Drawing) -> list[Chart]:
    rows = drawing.rows(lambda each: each.samples_per_second, units.rate)
    predicted = drawing.predictions(rows, units.rate)
    if not predicted:
        return []
    axes = drawing.axes(rows + predicted, "Samples per second")
    worst = max(predicted, key=lambda row: abs(float(row["off"])))
    caption = (
        f"Filled: measured.{drawing.intervals(rows)} Hollow: the planner's prediction, off by"
        f" {units.percent(fmean(abs(row['off']) for row in predicted))} on average and by"
        f" {units.percent(abs(worst['off']))} at most, on {worst['where']}."
    )
    label = "Samples per second over the workers, predicted and measured"
    layers = [drawing.predicted(predicted, axes), *drawing.measured(rows, axes)]
    return [drawing.picture("prediction", "Prediction and measurement", caption, label, layers)]


def _isoefficiency(drawing: _Drawing) -> list[Chart]:
    bound = bound_of(drawing.result)
    rows: Rows = []
    for reach in drawing.result.reaches:
        known = [each for each in reach.batch_for if 0 < each[1] < math.inf]
        # A single point makes no line.
        if reach.family in drawing.families and reach.bound == bound and len(known) > 1:
            rows += [_row(*each, reach.family) for each in known]
    if not rows:
        return []
    axes = drawing.axes(rows, "Batch, relative to the study's", log=True)
    caption = (
        f"Multiple of the study's batch that would keep efficiency at {units.percent(bound)},"
        " by the Universal Scalability Law, if overhead does not grow with the batch"
        " (isoefficiency: Grama, Gupta and Kumar 1993)."
    )
    label = "The batch that keeps efficiency, over the workers"
    layers = [drawing.lines(rows, axes, point={"filled": True, "size": 60})]
    return [drawing.picture("isoefficiency", "Batch that keeps efficiency", caption, label, layers)]


def _row(workers: float, value: float, family: str) -> dict[str, Any]:
    return {"workers": workers, "value": _short(value), "family": plain(family)}


def _short(value: float) -> float:
    """Round to the digits that a chart can show."""
    return float(f"{value:.5g}")
