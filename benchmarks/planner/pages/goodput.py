"""The tables and the picture of docs/goodput.md: modelled, nothing is run here.

Without `--write` the tables are printed; with it they replace those on the page, and the picture.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import altair
import numpy as np
import vl_convert

from benchmarks.common.output import argument_parser
from benchmarks.planner.pages.worked_plans import put_out, table_of
from paceline.plan.goodput_model import HOUR, LLAMA3_FAILURES_PER_DEVICE_HOUR, Recovery

DOCS = Path(__file__).parents[3] / "docs"
PAGE, PICTURE = DOCS / "goodput.md", DOCS / "pictures" / "goodput.svg"
DEVICES = (1_000, 4_096, 16_384, 32_768, 65_536, 100_000)
DEVICES_PER_NODE = 8
# Where each of these comes from is on the page.
SPARES = (0, 2, 8, 32)
DISK = Recovery(
    detection_seconds=60,
    restart_seconds=540,
    checkpoint_seconds=30,
    return_seconds=HOUR,
    nodes_per_replica=16,
)
PEERS = replace(
    DISK,
    uncovered=0.1,
    regroup_seconds=60,
    copy_interval_seconds=60,
    copy_seconds=0.3,
)
REGROUP = replace(PEERS, detection_seconds=1.5, restart_seconds=598.5, regroup_seconds=30)
WAYS = {
    "disk only": DISK,
    "peer copies, workers restart": PEERS,
    "peer copies, survivors regroup": REGROUP,
}
COLORS = ("#e15759", "#f28e2b", "#4e79a7")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    options = parser.parse_args()
    tables = {"goodput": goodputs(), "uncovered": uncovered(), "spares": spares()}
    put_out(tables, PAGE, "goodput", write=options.write)
    if options.write:
        PICTURE.write_text(picture())


def between_failures(devices: float) -> float:
    """Seconds, at the published rate."""
    return HOUR / (LLAMA3_FAILURES_PER_DEVICE_HOUR * devices)


def fraction(way: Recovery, devices: int) -> float:
    return way.useful_fraction(devices // DEVICES_PER_NODE, between_failures(devices))


def goodputs() -> str:
    """Each way on each number of devices."""
    rows = []
    for devices in DEVICES:
        apart = between_failures(devices)
        often = f"{apart / HOUR:.1f} h" if apart > 2 * HOUR else f"{apart / 60:.0f} min"
        rows.append(
            [f"{devices:,}", often, *(f"{fraction(way, devices):.1%}" for way in WAYS.values())]
        )
    return table_of(("devices", "a failure every", *WAYS), rows)


def uncovered() -> str:
    """How much depends on the share of failures that peers do not cover."""
    shares = (0.0, 0.05, 0.1, 0.2, 0.5)
    rows = [
        [
            f"{devices:,}",
            *(f"{fraction(replace(REGROUP, uncovered=share), devices):.1%}" for share in shares),
        ]
        for devices in (16_384, 100_000)
    ]
    return table_of(("devices", *(f"{share:.0%} uncovered" for share in shares)), rows)


def spares() -> str:
    """What spares bring, and what is left of that by what they cost."""
    rows = []
    for devices in (16_384, 100_000):
        nodes = devices // DEVICES_PER_NODE
        for count in SPARES:
            done = fraction(replace(REGROUP, spares=count), devices)
            rows.append(
                [
                    f"{devices:,}",
                    "0: fewer nodes" if count == 0 else f"{count}",
                    f"{done:.2%}",
                    f"{done * nodes / (nodes + count):.2%}",
                ]
            )
    return table_of(
        ("devices", "spare nodes", "goodput", "goodput over all nodes, with spares"), rows
    )


def picture() -> str:
    """Goodput over devices, as SVG."""
    rows = [
        {"devices": devices, "goodput": fraction(way, devices), "of": name}
        for name, way in WAYS.items()
        for devices in np.geomspace(1_000, 100_000, 60).astype(int).tolist()
    ]
    draw: Any = altair  # partly typed only
    x = draw.X("devices:Q", title="Devices").scale(type="log", domain=[1_000, 100_000])
    y = draw.Y("goodput:Q", title="Goodput (model)").scale(domain=[0, 1], nice=False)
    colour = draw.Color("of:N", title=None).scale(domain=list(WAYS), range=list(COLORS))
    ticks = [1_000, 3_000, 10_000, 30_000, 100_000]
    chart = (
        draw.Chart(draw.Data(values=rows))
        .mark_line(strokeWidth=2)
        .encode(x=x.axis(values=ticks, format=",d", grid=False), y=y.axis(format="%"), color=colour)
        .properties(width=560, height=300, background="white")
        .configure_legend(orient="bottom", columns=1, labelLimit=400, labelFontSize=12)
        .configure_view(stroke=None)
    )
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg


if __name__ == "__main__":
    main()
