"""The batches of a batch study against samples, steps and time to a loss: a table and a chart."""

from types import ModuleType

from paceline.report.drawing.chart import BLUE, HEIGHT_PIXELS, VERMILION, Chart, finish
from paceline.report.drawing.tables import Table
from paceline.specs import Interval, LargerBatches, units

HEADINGS = ("Batch", "Samples", "Predicted", "Steps", "Time")


def cost_rows(found: LargerBatches) -> list[list[str]]:
    """Return what each batch takes to the target loss, formatted."""
    return [
        [
            f"{each.batch:,}",
            _with_half(each.samples),
            "–" if each.predicted_samples is None else f"{each.predicted_samples:,.0f}",
            _with_half(each.steps),
            "–" if each.seconds is None else units.duration(each.seconds.value),
        ]
        for each in found.costs
    ]


def cost_table(found: LargerBatches) -> Table:
    """Return the same as a table for the page."""
    caption = (
        f"To a training loss of {units.loss(found.target_loss)}, smoothed over a tenth of the"
        " samples; ± is half of a 95 % interval over the seeds. Predicted: from the gradient noise"
        " of the smallest batch and its samples."
    )
    return Table("Cost to a loss", HEADINGS, cost_rows(found), (), caption)


def cost_chart(found: LargerBatches, altair: ModuleType) -> Chart:
    """Return samples to the target loss by batch, predicted beside measured."""
    rows = [
        {
            "batch": each.batch,
            "value": each.samples.value,
            "low": each.samples.low or each.samples.value,
            "high": each.samples.high or each.samples.value,
            "predicted": each.predicted_samples,
        }
        for each in sorted(found.costs, key=lambda each: each.batch)
    ]
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("batch:Q", title="Batch", scale=altair.Scale(type="log", base=2)).axis(
            values=[row["batch"] for row in rows], format=",d"
        )
    )

    def y(field: str) -> object:
        scale = altair.Scale(zero=False)
        return altair.Y(f"{field}:Q", title="Samples to the loss", scale=scale).axis(format="~s")

    layers = [
        base.mark_rule(color=BLUE).encode(y=y("low"), y2="high"),
        base.mark_line(point=True, color=BLUE, strokeWidth=2).encode(y=y("value")),
    ]
    caption = "Measured, with its 95 % interval over the seeds."
    if found.predicted is not None:
        line = base.mark_line(color=VERMILION, strokeDash=[6, 3], strokeWidth=2)
        layers.append(line.encode(y=y("predicted")))
        caption += " Dashed: predicted from the gradient noise of the smallest batch."
    label = "Lines of the samples to a loss over the batch, measured and predicted"
    chart = altair.layer(*layers).properties(width="container", height=HEIGHT_PIXELS)
    return Chart("batch-costs", "Samples to a loss", caption, label, finish(chart, label))


def _with_half(found: Interval) -> str:
    half = f" ± {found.half:,.0f}" if found.half is not None else ""
    return f"{found.value:,.0f}{half}"
