"""The training's own metrics: a chart of each, those of `trainer.log` and of evaluations.

A metric's chart shows the evaluations of the same name beside it.
"""

import math
from types import ModuleType

from paceline.observe.metric_names import VALIDATION
from paceline.report.drawing.brief import Content
from paceline.report.drawing.chart import BLUE, HEIGHT_PIXELS, VERMILION, Chart, finish
from paceline.report.drawing.tables import Table
from paceline.report.reading.metric_series import Series
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units
from paceline.specs.base import Spec

MOST_CHARTS = 12
_LOGGED, _EVALUATED = "training", "validation"


class Metric(Spec):
    """One metric over the steps; values that are NaN or infinite are left out."""

    count: int
    """Number of recorded values."""
    step: int
    """Step of the last value."""
    last: float | None
    lowest: float | None
    lowest_step: int | None
    highest: float | None
    highest_step: int | None


Metrics = dict[str, Metric]


class _Metrics(Section[Metrics]):
    order = 12
    key = "metrics"

    def figures(self, run: ReportedRun) -> Metrics:
        return {name: _figures(series) for name, series in run.state.metrics.items()}

    def content(self, run: ReportedRun, figures: Metrics) -> Content | None:
        if not figures:
            return None

        def charts(altair: ModuleType) -> list[Chart]:
            return [_chart(run.state, name, altair) for name in _charted(run.state)[:MOST_CHARTS]]

        return Content(
            title="Metrics",
            charts=charts,
            tables=[_table(figures)],
            rows=[(name, units.loss(each.last)) for name, each in figures.items()],
        )


SECTION = _Metrics()


def _figures(series: Series) -> Metric:
    finite = [
        (value, step)
        for step, value in zip(series.step, series.value, strict=True)
        if math.isfinite(value)
    ]
    lowest = min(finite, default=(None, None))
    highest = max(finite, key=lambda each: (each[0], -each[1]), default=(None, None))
    last = series.value[-1]
    return Metric(
        count=len(series.step),
        step=series.step[-1],
        last=last if math.isfinite(last) else None,
        lowest=lowest[0],
        lowest_step=lowest[1],
        highest=highest[0],
        highest_step=highest[1],
    )


def _table(figures: Metrics) -> Table:
    rows = [
        (
            name,
            f"{units.loss(each.last)} (step {each.step:,})",
            _at(each.lowest, each.lowest_step),
            _at(each.highest, each.highest_step),
            f"{each.count:,}",
        )
        for name, each in figures.items()
    ]
    columns = ("Metric", "Last", "Lowest", "Highest", "Values")
    caption = (
        "Means over the workers, weighted by their samples."
        f" {VALIDATION}… are results of evaluations."
    )
    return Table("All metrics", columns, rows, columns[:1], caption)


def _at(value: float | None, step: int | None) -> str:
    return "–" if value is None else f"{units.loss(value)} (step {step:,})"


def _charted(state: RunState) -> list[str]:
    """Return the charts' names: a logged metric and the evaluations of its name share one."""
    return list(dict.fromkeys(name.removeprefix(VALIDATION) for name in state.metrics))


def _chart(state: RunState, name: str, altair: ModuleType) -> Chart:
    from paceline.report.drawing.downsampling import curve  # noqa: PLC0415

    kinds = {_LOGGED: name, _EVALUATED: f"{VALIDATION}{name}"}
    lines = {kind: state.metrics[key] for kind, key in kinds.items() if key in state.metrics}
    if name == "loss":  # the training's own loss, beside that of evaluations
        lines = {_LOGGED: Series(state.step, state.loss)} | lines
    rows = [
        {"kind": kind, "step": row["step"], "value": row["mean"]}
        for kind, series in lines.items()
        for row in curve(series.step, series.value, [0] * len(series.step)).rows
    ]
    shown = list(lines)
    colors = {_LOGGED: BLUE, _EVALUATED: VERMILION}
    legend = altair.Legend(orient="top", labelColor="currentColor") if len(shown) > 1 else None
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("step:Q", title="Step").scale(nice=False).axis(format=",d", tickMinStep=1),
        y=altair.Y("value:Q", title=name).scale(zero=False),
        color=altair.Color("kind:N", title=None, legend=legend).scale(
            domain=shown, range=[colors[kind] for kind in shown]
        ),
        tooltip=[
            altair.Tooltip("kind:N", title="in"),
            altair.Tooltip("step:Q", title="step", format=",d"),
            altair.Tooltip("value:Q", title=name, format=".4~g"),
        ],
    )
    few = altair.datum.kind == _EVALUATED
    points = base.transform_filter(few).mark_point(filled=True, size=40)
    chart = altair.layer(base.mark_line(strokeWidth=2), points)
    label = f"Line chart of {name} over the steps, in {' and '.join(shown)}"
    caption = "Points: evaluations." if _EVALUATED in shown else "Means over the workers."
    spec = finish(chart.properties(width="container", height=HEIGHT_PIXELS), label)
    key = f"metric-{name.replace('/', '-')}"
    # The loss in training has a chart of its own.
    title = "Loss in validation" if name == "loss" else name.capitalize()
    return Chart(key, title, caption, label, spec)
