"""Compare the plan's predicted step time with the measurement."""

from statistics import fmean, median, quantiles
from types import ModuleType

from paceline.report.drawing.brief import Content
from paceline.report.drawing.chart import BLUE, VERMILION, Chart, finish
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units
from paceline.specs.base import Spec

HEIGHT_PIXELS = 90
FEWEST_STEPS = 3
"""Minimum number of steps for a meaningful median."""


class PredictionFigures(Spec):
    """The step time, predicted and measured."""

    predicted_seconds: float
    low_seconds: float
    """With `high_seconds`, the 90 % interval of the prediction."""
    high_seconds: float
    measured_seconds: float
    """Median over the steps; mean if communication differs from step to step."""
    measured_low_seconds: float
    """The 5th percentile of the steps."""
    measured_high_seconds: float
    """The 95th percentile of the steps."""
    off: float
    """Relative error of the prediction; positive if it is too long."""
    within: bool
    """Whether the measured time lies in the interval."""


def prediction_figures(state: RunState) -> PredictionFigures | None:
    """Compare the plan's estimate with the run; None without one or if the run departs from it."""
    estimate = state.plan.estimate
    if estimate is None or (estimate.layout, estimate.sync) != (state.plan.layout, state.plan.sync):
        return None
    if len(state.seconds) < FEWEST_STEPS or {each.batch for each in state.started} != {
        estimate.batch
    }:
        return None
    alike = not state.plan.sync.replicas_differ
    said, took = estimate.step_seconds, (median if alike else fmean)(state.seconds)
    parts = quantiles(state.seconds, n=20, method="inclusive")
    return PredictionFigures(
        predicted_seconds=said.value,
        low_seconds=said.low,
        high_seconds=said.high,
        measured_seconds=took,
        measured_low_seconds=parts[0],
        measured_high_seconds=parts[-1],
        off=said.value / took - 1,
        within=said.low <= took <= said.high,
    )


def prediction_sentence(figures: PredictionFigures) -> str:
    """Return `A step took 24 ms; the plan predicted 22 ms (20 to 25 ms): 8 % too short, …`."""
    how = "too long" if figures.off > 0 else "too short"
    return (
        f"A step took {units.duration(figures.measured_seconds)}; the plan predicted"
        f" {units.duration(figures.predicted_seconds)}"
        f" ({units.duration(figures.low_seconds)} to {units.duration(figures.high_seconds)}):"
        f" {units.percent(abs(figures.off))} {how},"
        f" {'within' if figures.within else 'outside'} its interval."
    )


def _chart(figures: PredictionFigures, altair: ModuleType) -> Chart:
    rows = [
        {
            "what": "predicted",
            "middle": 1e3 * figures.predicted_seconds,
            "low": 1e3 * figures.low_seconds,
            "high": 1e3 * figures.high_seconds,
        },
        {
            "what": "measured",
            "middle": 1e3 * figures.measured_seconds,
            "low": 1e3 * figures.measured_low_seconds,
            "high": 1e3 * figures.measured_high_seconds,
        },
    ]
    color = altair.Color(
        "what:N",
        legend=None,
        scale=altair.Scale(domain=["predicted", "measured"], range=[BLUE, VERMILION]),
    )
    base = altair.Chart(altair.Data(values=rows)).encode(
        y=altair.Y("what:N", title=None, sort=["predicted", "measured"]), color=color
    )
    x = altair.X("low:Q", title="Milliseconds per step").scale(zero=True)
    label = "Intervals of the step time, predicted and measured"
    chart = altair.layer(
        base.mark_bar(height=10, opacity=0.4).encode(x=x, x2="high"),
        base.mark_point(filled=True, size=120, opacity=1).encode(
            x="middle:Q",
            tooltip=[altair.Tooltip("middle:Q", title="ms", format=",.4~r")],
        ),
    ).properties(width="container", height=HEIGHT_PIXELS)
    return Chart(
        "prediction",
        "Prediction and measurement",
        prediction_sentence(figures)
        + " Bars: 90 % intervals of the prediction and of the measured steps.",
        label,
        finish(chart, label),
    )


class _Prediction(Section[PredictionFigures | None]):
    order = 65
    key = "prediction"

    def figures(self, run: ReportedRun) -> PredictionFigures | None:
        return prediction_figures(run.state)

    def content(self, run: ReportedRun, figures: PredictionFigures | None) -> Content | None:
        if figures is None:
            return None
        return Content(charts=lambda altair: [_chart(figures, altair)])


SECTION = _Prediction()
