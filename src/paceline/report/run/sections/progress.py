"""Progress: loss, throughput and step time over the steps, and the distribution of step times.

NumPy is imported where the charts are drawn: `--json` does not need it.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from paceline.report.drawing.brief import Content
from paceline.report.drawing.chart import BLUE, GREEN, HEIGHT_PIXELS, VERMILION, Chart, finish
from paceline.report.reading.failure_cause import plain
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import units

if TYPE_CHECKING:
    from paceline.report.drawing.downsampling import Curve

Seam = dict[str, int | str]


class _Progress(Section[None]):
    order = 10

    def content(self, run: ReportedRun, figures: None) -> Content:
        drawn = (_loss, _throughput, _step_time, _distribution)
        return Content(charts=lambda altair: [draw(run.state, altair) for draw in drawn])


SECTION = _Progress()


def _loss(state: RunState, altair: ModuleType) -> Chart:
    import numpy as np  # noqa: PLC0415

    from paceline.report.drawing.downsampling import curve  # noqa: PLC0415

    drawn = curve(state.step, state.loss, state.samples)
    finite = np.isfinite(state.loss)
    missing = np.flatnonzero(~finite)
    caption = _line_caption(drawn, "loss")
    if len(missing):
        caption += (
            f" At {units.count(len(missing), 'step')}, first at step"
            f" {state.step[missing[0]]:,}, the loss was NaN or"
            " infinite: gaps in the line."
        )
    label = "Line chart of the loss over the steps"
    if finite.any():
        known = np.asarray(state.loss)[finite]
        label += f", from {units.loss(known[0])} to {units.loss(known[-1])}"
    seams = _seams(state)
    if seams:
        caption += (
            " Dashed line: the interruption, at the step where the next start continued."
            if len(seams) == 1
            else f" Dashed lines: the {len(seams):,} interruptions, each at the step where the next"
            " start continued."
        )
        label += f", with {units.count(len(seams), 'interruption')}"
    spec = _over_steps(
        altair,
        drawn,
        title="Loss",
        label=label,
        color=BLUE,
        number=".4~g",
        zero=False,
        seams=seams,
    )
    return Chart("loss", "Loss", caption, label, spec)


def _throughput(state: RunState, altair: ModuleType) -> Chart:
    import numpy as np  # noqa: PLC0415

    from paceline.report.drawing.downsampling import curve  # noqa: PLC0415

    seconds = np.asarray(state.seconds)
    rates = np.full(len(seconds), np.nan)
    np.divide(state.samples, seconds, out=rates, where=seconds > 0)
    drawn = curve(state.step, rates, state.samples, weights=state.seconds)
    label = "Line chart of the samples per second over the steps"
    title = "Samples per second"
    spec = _over_steps(
        altair, drawn, title=title, label=label, color=GREEN, number=",.4~r", zero=True
    )
    caption = _line_caption(drawn, "throughput")
    return Chart("throughput", "Throughput", caption, label, spec)


def _step_time(state: RunState, altair: ModuleType) -> Chart:
    import numpy as np  # noqa: PLC0415

    from paceline.report.drawing.downsampling import curve, long_edge  # noqa: PLC0415

    values = 1000 * np.asarray(state.seconds)
    drawn = curve(state.step, values, state.samples)
    caption = _line_caption(drawn, "step time")
    edge, longest = long_edge(values), float(values.max())
    if edge < longest:
        beyond = int((values > edge).sum())
        at = state.step[int(values.argmax())]
        caption += (
            f" {units.count(beyond, 'step')} exceed the top of the chart;"
            f" the longest, step {at:,}, took {units.duration(longest / 1000)}."
        )
    label = "Line chart of the milliseconds per step over the steps"
    title = "Milliseconds per step"
    spec = _over_steps(
        altair,
        drawn,
        title=title,
        label=label,
        color=VERMILION,
        number=",.4~r",
        zero=True,
        top=1.05 * edge,
    )
    return Chart("step-time", "Step time", caption, label, spec)


def _distribution(state: RunState, altair: ModuleType) -> Chart:
    import numpy as np  # noqa: PLC0415

    from paceline.report.drawing.downsampling import histogram  # noqa: PLC0415

    drawn = histogram(1000 * np.asarray(state.seconds))
    spec = (
        altair.Chart(altair.Data(values=drawn.rows))
        .mark_bar(color=VERMILION, binSpacing=0.5)
        .encode(
            x=altair.X("low:Q", bin="binned", title="Milliseconds per step").scale(nice=False),
            x2="high",
            y=altair.Y("steps:Q", title="Steps").axis(
                tickCount=min(5, len(state.step)), format=",d"
            ),
            tooltip=[
                altair.Tooltip("low:Q", title="from ms", format=",.4~r"),
                altair.Tooltip("high:Q", title="to ms", format=",.4~r"),
                altair.Tooltip("steps:Q", title="steps", format=",d"),
            ],
        )
        .properties(width="container", height=HEIGHT_PIXELS)
    )
    caption = f"Step times of {units.count(len(state.step), 'step')}."
    if drawn.steps_beyond:
        caption += f" {units.count(drawn.steps_beyond, 'step')} beyond the right edge."
    label = "Histogram of the milliseconds per step"
    return Chart("distribution", "Distribution of step times", caption, label, finish(spec, label))


def _over_steps(
    altair: ModuleType,
    drawn: "Curve",
    *,
    title: str,
    label: str,
    color: str,
    number: str,
    zero: bool,
    top: float | None = None,
    seams: list[Seam] | None = None,
) -> dict[str, Any]:
    scale = altair.Scale(zero=zero, domainMax=top) if top is not None else altair.Scale(zero=zero)
    base = altair.Chart(altair.Data(values=drawn.rows)).encode(
        x=altair.X("step:Q", title="Step")
        .scale(nice=False)
        .axis(format="~s" if drawn.steps_per_row > 10 else ",d", tickMinStep=1)
    )

    def y(field: str) -> Any:
        return altair.Y(f"{field}:Q", title=title, scale=scale)

    tooltip = [
        altair.Tooltip("step:Q", title="step", format=",d"),
        altair.Tooltip("samples:Q", title="samples so far", format=",d"),
        altair.Tooltip("mean:Q", title=title.lower(), format=number),
    ]
    if drawn.steps_per_row > 1:
        faint = base.mark_area(color=color, opacity=0.3, clip=True).encode(y=y("low"), y2="high")
        tooltip[1:1] = [altair.Tooltip("last:Q", title="to step", format=",d")]
        tooltip += [
            altair.Tooltip("low:Q", title="lowest", format=number),
            altair.Tooltip("high:Q", title="highest", format=number),
        ]
    else:
        faint = base.mark_line(color=color, opacity=0.7, strokeWidth=1, clip=True).encode(
            y=y("mean")
        )
    trend = base.mark_line(color=color, strokeWidth=2.5, clip=True).encode(y=y("trend"))
    # The tooltip shows the nearest step, since a thousand points are too small to hit. A run of
    # one step has no line, only its point.
    near = altair.selection_point(on="pointerover", nearest=True, encodings=["x"], empty=False)
    visible = (
        altair.value(1)
        if len(drawn.rows) == 1
        else altair.when(near).then(altair.value(1)).otherwise(altair.value(0))
    )
    points = (
        base.mark_point(color=color, filled=True, size=60, clip=True)
        .encode(y=y("mean"), opacity=visible, tooltip=tooltip)
        .add_params(near)
    )
    chart = altair.layer(*_rules(altair, seams or []), faint, trend, points)
    return finish(chart.properties(width="container", height=HEIGHT_PIXELS), label)


def _seams(state: RunState) -> list[Seam]:
    """Return the steps from which restarts continued; the timeline shows regroups."""
    return [
        {
            # The axis begins at the first step.
            "step": max(state.step[0], each.reached if each.resumed is None else each.resumed),
            "cause": plain(each.cause),
            "reached": each.reached,
        }
        for each in state.interruptions
        if each.regrouped is None
    ]


def _rules(altair: ModuleType, seams: list[Seam]) -> list[Any]:
    if not seams:
        return []
    rules = altair.Chart(altair.Data(values=seams)).mark_rule(
        color="currentColor", opacity=0.6, strokeWidth=1, strokeDash=[4, 3]
    )
    tooltip = [
        altair.Tooltip("cause:N", title="interrupted"),
        altair.Tooltip("reached:Q", title="step reached", format=",d"),
        altair.Tooltip("step:Q", title="continued from step", format=",d"),
    ]
    # Use the line's axis, which must not begin at 0 because of the rules.
    x = altair.X("step:Q", title="Step").scale(nice=False, zero=False)
    return [rules.encode(x=x, tooltip=tooltip)]


def _line_caption(drawn: "Curve", name: str) -> str:
    if drawn.steps_per_row > 1:
        return (
            f"Each point is {drawn.steps_per_row:,} steps: the line is their mean {name}, the band"
            " reaches from the lowest to the highest step."
        )
    if drawn.trend_steps > 1:
        return (
            f"Thin line: every step. Thick line: median of the {drawn.trend_steps:,} steps"
            " around each."
        )
    return "Every step is drawn."
