"""How fast gossip brings workers to consensus, beside the prediction from the graph's spectrum.

Simulated, in one process: workers start with random numbers, learn nothing, and mix in every step
with the peers that `paceline.sync.modes.gossip.graphs` gives them. The remaining distance from the
mean (root mean square over random starts and, with random graphs, over steps) stands beside a
prediction that does not use these graphs: a ring and exponential shifts are diagonal in the
discrete Fourier transform, and a random circle keeps (n - 2) / 2(n - 1) of a squared distance on
average.
"""

import argparse
import cmath
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline.report.drawing.chart import BLUE, GREEN, HEIGHT_PIXELS, VERMILION, drawing_packages
from paceline.sync.modes.gossip.graphs import peers

COLORS = {"ring": BLUE, "exponential": GREEN, "random": VERMILION}
WORKERS = (4, 8, 16)
NUMBERS = 200
ENOUGH, GOAL = 0.01, 0.05
"""A distance at which workers agree well, and how far the prediction may be off until there."""
NOTHING = 1e-7
"""Below this a distance is rounding: all have the mean."""


@dataclass(frozen=True)
class Curve:
    """What is left of the distance after 0, 1, 2, ... steps."""

    graph: str
    workers: int
    measured: list[float]
    predicted: list[float]

    @property
    def sent_per_step(self) -> int:
        """Copies of the model that a worker sends in a step."""
        return len(peers(self.graph, self.workers, 0)[0])

    def steps_until(self, left: float) -> int | None:
        """The first step after which no more than this is left."""
        return next((step for step, each in enumerate(self.measured) if each <= left), None)

    @property
    def deviation(self) -> float:
        """The largest, relative to what was predicted, until workers agree well."""
        pairs = zip(self.measured, self.predicted, strict=True)
        return max(abs(one / other - 1) for one, other in pairs if other > ENOUGH)


def simulated(graph: str, workers: int, steps: int, draws: int) -> list[float]:
    """The root mean square over draws."""
    squares = np.zeros(steps + 1)
    # Each draw begins where its graph does, and has random steps of its own.
    stride = steps * (workers - 1).bit_length()
    for draw in range(draws):
        weights = np.random.default_rng(draw).standard_normal((workers, NUMBERS))
        squares[0] += _squared_distance(weights)
        for step in range(steps):
            weights = _mixed(weights, peers(graph, workers, draw * stride + step))
            squares[step + 1] += _squared_distance(weights)
    return [float(each) for each in np.sqrt(squares / squares[0])]


def predicted(graph: str, workers: int, steps: int) -> list[float]:
    """The same, from the spectrum."""
    if graph == "random":
        kept = (workers - 2) / (2 * (workers - 1))
        return [kept ** (step / 2) for step in range(steps + 1)]
    left = [1.0] * (workers - 1)
    means = [1.0]
    for step in range(steps):
        for number in range(1, workers):
            turn = cmath.exp(2j * cmath.pi * number / workers)
            far = 2 ** (step % math.ceil(math.log2(workers)))
            factor = (1 + turn + 1 / turn) / 3 if graph == "ring" else (1 + turn**far) / 2
            left[number - 1] *= abs(factor)
        means.append(math.sqrt(sum(each**2 for each in left) / len(left)))
    return means


def _mixed(
    weights: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", sending: list[tuple[int, ...]]
) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    total = weights.copy()
    for rank, receivers in enumerate(sending):
        for receiver in receivers:
            total[receiver] += weights[rank]
    return total / (1 + len(sending[0]))


def _squared_distance(weights: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> float:
    return float(((weights - weights.mean(0)) ** 2).sum())


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg", type=Path, help="draw the curves to this file")
    options = parser.parse_args()
    curves = [
        Curve(
            graph,
            workers,
            simulated(graph, workers, options.steps, options.draws),
            predicted(graph, workers, options.steps),
        )
        for workers in WORKERS
        for graph in COLORS
    ]
    met = all(curve.deviation <= GOAL for curve in curves)
    if options.svg:
        options.svg.write_text(picture(curves))
    if options.json:
        _print_json(curves, met)
    else:
        _print_table(curves, met, options)


def picture(curves: list[Curve]) -> str:
    """An SVG: one part for each number of workers, points simulated, lines predicted."""
    altair, vl_convert = drawing_packages()
    rows = [
        {
            "workers": f"{curve.workers} workers",
            "order": curve.workers,
            "graph": curve.graph,
            "step": step,
            "simulated": max(measured, NOTHING),
            "predicted": max(expected, NOTHING),
        }
        for curve in curves
        for step, (measured, expected) in enumerate(
            zip(curve.measured, curve.predicted, strict=True)
        )
    ]
    base = altair.Chart().encode(
        x=altair.X("step:Q", title="Step").scale(nice=False).axis(grid=False, tickMinStep=1),
        color=altair.Color("graph:N", title="graph", sort=list(COLORS)).scale(
            domain=list(COLORS), range=list(COLORS.values())
        ),
    )
    scale = altair.Scale(type="log", domain=[1e-4, 1])
    title = "Distance from the mean, of that at the beginning"
    left = altair.layer(
        base.mark_line(clip=True).encode(
            y=altair.Y("predicted:Q", title=title, scale=scale, axis=altair.Axis(format="~%"))
        ),
        base.mark_point(clip=True, filled=True, size=30).encode(
            y=altair.Y("simulated:Q", title=title, scale=scale)
        ),
        data=altair.Data(values=rows),
    )
    drawn = (
        left.properties(width=230, height=HEIGHT_PIXELS)
        .facet(
            column=altair.Column(
                "workers:N",
                title=None,
                sort=altair.EncodingSortField(field="order", op="min"),
            )
        )
        .properties(
            title={
                "text": "How fast gossip agrees",
                "subtitle": "points: simulated; lines: predicted from the spectrum;"
                " a line that drops to the floor has come to the mean",
            }
        )
    )
    svg: str = vl_convert.vegalite_to_svg(drawn.to_json())
    return svg


def _print_json(curves: list[Curve], met: bool) -> None:
    found = [
        {
            "graph": curve.graph,
            "workers": curve.workers,
            "sent_per_step": curve.sent_per_step,
            "steps_until_1_percent": curve.steps_until(ENOUGH),
            "deviation": curve.deviation,
            "simulated": curve.measured,
            "predicted": curve.predicted,
        }
        for curve in curves
    ]
    print(json.dumps({"met": {f"deviation <= {GOAL}": met}, "curves": found}, indent=2))


def _print_table(curves: list[Curve], met: bool, options: argparse.Namespace) -> None:
    shown = [step for step in (1, 2, 4, 8, 16) if step <= options.steps]
    table = Table(
        title=f"Distance left, simulated / predicted; {options.draws} draws; learning rate 0"
    )
    for column in ("workers", "graph", "sent"):
        table.add_column(column)
    for step in shown:
        table.add_column(f"step {step}", justify="right")
    for column in ("steps to 1 %", "largest deviation"):
        table.add_column(column, justify="right")
    for curve in curves:
        until = curve.steps_until(ENOUGH)
        table.add_row(
            str(curve.workers),
            curve.graph,
            f"{curve.sent_per_step} x model",
            *(_pair(curve.measured[step], curve.predicted[step]) for step in shown),
            f"> {options.steps}" if until is None else str(until),
            f"{curve.deviation:.1%}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"{'met' if met else 'NOT MET'}: within {GOAL:.0%} of the prediction until 1 % is left"
    )


def _pair(*values: float) -> str:
    return " / ".join("0" if value < NOTHING else f"{value:.2g}" for value in values)


if __name__ == "__main__":
    main()
