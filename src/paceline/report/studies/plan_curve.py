"""The chart of a plan: samples/s over nodes, with the prediction interval."""

from typing import TYPE_CHECKING, Any

from paceline.report.drawing.chart import BLUE, HEIGHT_PIXELS, VERMILION, drawing_packages

if TYPE_CHECKING:
    from paceline.specs import Answer

WIDTH_PIXELS = 560


def scaling_picture(said: "Answer") -> str:
    """Return an SVG of predicted throughput, its interval, and ideal scaling."""
    altair, vl_convert = drawing_packages()
    first = said.curve[0]
    each = first.samples_per_second / first.nodes
    rows = [
        {
            "nodes": point.nodes,
            "predicted": point.samples_per_second,
            "low": said.batch / point.step_seconds.high,
            "high": said.batch / point.step_seconds.low,
            "ideal": each * point.nodes,
            "chosen": point.nodes == said.nodes,
        }
        for point in said.curve
    ]
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("nodes:Q", title="nodes", scale=_log(altair), axis=_ticks(altair, rows))
    )
    drawn = altair.layer(
        base.mark_area(opacity=0.2, color=BLUE).encode(
            y=altair.Y("low:Q", title="samples per second", scale=_log(altair)), y2="high:Q"
        ),
        base.mark_line(strokeDash=[4, 4], color="gray").encode(y="ideal:Q"),
        base.mark_line(color=BLUE, point=True).encode(y="predicted:Q"),
        base.mark_point(size=160, filled=True, color=VERMILION)
        .transform_filter("datum.chosen")
        .encode(y="predicted:Q"),
    ).properties(
        width=WIDTH_PIXELS,
        height=HEIGHT_PIXELS,
        title={
            "text": f"{said.model}, batch {said.batch:,}",
            "subtitle": "predicted; band: nine of ten within; dashed: ideal; red: the plan",
        },
    )
    svg: str = vl_convert.vegalite_to_svg(drawn.to_json())
    return svg


def _log(altair: Any) -> Any:
    return altair.Scale(type="log", base=2)


def _ticks(altair: Any, rows: list[dict[str, Any]]) -> Any:
    return altair.Axis(values=[row["nodes"] for row in rows], format=",d", grid=False)
