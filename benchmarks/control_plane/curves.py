"""The growth of a regroup after a kill, drawn: seconds and bytes over the number of members."""

from collections.abc import Sequence

from benchmarks.control_plane.measurement import KILLED, Measurement, grouped, median_of
from paceline.report.drawing.chart import BLUE, GREEN, HEIGHT_PIXELS, VERMILION, drawing_packages

GREY = "#7f7f7f"
COLORS = {
    "processes": BLUE,
    "event loops": GREEN,
    "simulated": GREY,
    "simulated, a core each": VERMILION,
}


def picture(found: Sequence[Measurement]) -> str:
    """Return an SVG of the medians."""
    altair, vl_convert = drawing_packages()
    rows = []
    for (how, members, event), some in grouped(found).items():
        if event == KILLED:
            one = median_of(some)
            rows.append(
                {
                    "how": how,
                    "members": members,
                    "seconds": one.seconds,
                    "mean": one.total_bytes / members,
                    "busiest": one.busiest_bytes,
                }
            )
    sizes = altair.X("members:Q", title="Workers", scale=altair.Scale(type="log")).axis(
        grid=False, format="~s", tickCount=5
    )
    color = altair.Color("how:N", title=None, sort=list(COLORS)).scale(
        domain=list(COLORS), range=list(COLORS.values())
    )

    def panel(field: str, title: str, unit: str) -> object:
        scale = altair.Scale(type="log", nice=True)
        axis = altair.Axis(format=unit, tickCount=5)
        return (
            altair.Chart()
            .mark_line(point=True)
            .encode(x=sizes, y=altair.Y(f"{field}:Q", title=title, scale=scale, axis=axis))
            .encode(color=color)
            .properties(width=230, height=HEIGHT_PIXELS)
        )

    drawn = altair.hconcat(
        panel("seconds", "Seconds until all continue", "~g"),
        panel("mean", "Bytes sent by a worker", "~s"),
        panel("busiest", "Bytes of the busiest worker", "~s"),
        data=altair.Data(values=rows),
    ).properties(
        title={
            "text": "One worker is killed",
            "subtitle": "medians; processes, event loops and simulated: on two cores for all",
        }
    )
    drawn = drawn.configure_legend(orient="bottom", labelLimit=0)
    svg: str = vl_convert.vegalite_to_svg(drawn.to_json())
    return svg
