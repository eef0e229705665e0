"""The charts of compared runs, as Vega-Lite specifications written with Altair."""

import math
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from paceline.report.comparison.compared_runs import Compared, Comparison
from paceline.report.drawing.chart import (
    BLUE,
    FAMILY_COLORS,
    HEIGHT_PIXELS,
    Chart,
    finish,
    legend_columns,
    named_bars,
)
from paceline.report.reading.failure_cause import plain
from paceline.report.run.step_breakdown import COLORS, MEANINGS, meanings, part_colors
from paceline.specs import units

MOST_LINES = 12
MOST_BARS = 20
POINTS = 100
"""Maximum number of points per line."""
DASHES = ([1, 0], [5, 3])


def comparison_pictures(found: Comparison, altair: ModuleType) -> list[Chart]:
    """Return charts of loss over samples, throughput, and step breakdown."""
    if not found.trained:
        return []
    return [_loss(found, altair), _throughput(found, altair), *_parts(found, altair)]


def _loss(found: Comparison, altair: ModuleType) -> Chart:
    runs, left_out = _first_and(
        found, MOST_LINES, lambda each: _or_infinite(found.losses[each.number]), "of lowest loss"
    )
    rows = [row for each in runs for row in _line(each)]
    names = [_label(each) for each in runs]
    legend = altair.Legend(
        orient="top",
        columns=legend_columns(names),
        labelColor="currentColor",
        labelLimit=300,
        symbolType="stroke",
        symbolStrokeWidth=2.5,
    )
    colors = [FAMILY_COLORS[at % len(FAMILY_COLORS)] for at in range(len(names))]
    dashes = [DASHES[at // len(FAMILY_COLORS)] for at in range(len(names))]
    rule = altair.Chart(altair.Data(values=[{"samples": found.equal_samples}])).mark_rule(
        color="currentColor", opacity=0.6, strokeDash=[2, 3]
    )
    lines = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(strokeWidth=2)
        .encode(
            x=altair.X("samples:Q", title="Samples")
            .scale(nice=False)
            .axis(labelExpr="format(datum.value, '~s')"),
            y=altair.Y("loss:Q", title="Loss").scale(zero=False),
            color=altair.Color("run:N", title=None, legend=legend).scale(
                domain=names, range=colors
            ),
            strokeDash=altair.StrokeDash("run:N", title=None, legend=legend).scale(
                domain=names, range=dashes
            ),
            tooltip=[
                altair.Tooltip("run:N", title="run"),
                altair.Tooltip("samples:Q", title="samples so far", format=",d"),
                altair.Tooltip("loss:Q", title="mean loss", format=".4~g"),
            ],
        )
    )
    label = f"Line chart of the loss over the samples of {units.count(len(runs), 'run')}"
    caption = (
        f"Each point is the mean of up to 1/{POINTS} of a run. Dotted: {found.equal_samples:,}"
        f" samples, which all runs have seen.{left_out}"
    )
    chart = altair.layer(rule.encode(x="samples:Q"), lines)
    spec = finish(chart.properties(width="container", height=HEIGHT_PIXELS), label)
    return Chart("loss", "Loss over samples", caption, label, spec)


def _line(each: Compared) -> list[dict[str, Any]]:
    """Return the means of up to `POINTS` intervals; a mean that is not finite leaves a gap."""
    edges = np.linspace(0, len(each.loss), min(POINTS, len(each.loss)) + 1).astype(int)
    return [
        {
            "run": _label(each),
            "samples": int(each.seen[stop - 1]),
            "loss": float(f"{mean:.5g}") if math.isfinite(mean) else None,
        }
        for start, stop in pairwise(edges)
        for mean in [float(np.mean(each.loss[start:stop]))]
    ]


def _throughput(found: Comparison, altair: ModuleType) -> Chart:
    runs, left_out = _fastest(found)
    rows = [
        {
            "run": _label(each),
            "rate": float(f"{each.figures.samples_per_second:.5g}"),
            "workers": each.figures.workers,
        }
        for each in runs
    ]
    chart = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("rate:Q", title="Samples per second").axis(format="~s"),
        color=altair.value(BLUE),
        tooltip=[
            altair.Tooltip("run:N", title="run"),
            altair.Tooltip("rate:Q", title="samples per second", format=",.4~r"),
            altair.Tooltip("workers:Q", title="workers", format=",d"),
        ],
    )
    caption = f"Samples per second over the whole run.{left_out}"
    return _bars(chart, altair, "throughput", "Throughput", caption, len(runs))


def _parts(found: Comparison, altair: ModuleType) -> list[Chart]:
    runs, left_out = _fastest(found)
    known = [(each, parts.seconds) for each in runs if (parts := each.breakdown)]
    if not known:
        return []
    order = [part for part in COLORS if any(part in seconds for _, seconds in known)]
    rows = [
        {
            "run": _label(each),
            "part": part,
            "order": order.index(part),
            "ms": float(f"{1e3 * seconds[part]:.5g}"),
            "meaning": MEANINGS[part],
        }
        for each, seconds in known
        for part in order
        if part in seconds
    ]
    shown = {"run": "run", "part": "part", "meaning": "which", "ms": "ms"}
    chart = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("ms:Q", title="Milliseconds per step, mean", stack="zero"),
        order="order:O",
        color=part_colors(order, altair),
        tooltip=[altair.Tooltip(f"{key}:N", title=title) for key, title in shown.items()],
    )
    caption = f"Mean over the workers of each run. Parts: {meanings(order)}.{left_out}"
    return [_bars(chart, altair, "parts", "Step breakdown", caption, len(known))]


def _bars(chart: Any, altair: ModuleType, key: str, title: str, caption: str, number: int) -> Chart:
    label = f"{title}: a bar for each of {units.count(number, 'run')}"
    drawn = named_bars(chart, "run", number, altair)
    return Chart(key, title, caption, label, finish(drawn, label))


def _fastest(found: Comparison) -> tuple[list[Compared], str]:
    return _first_and(found, MOST_BARS, lambda each: -each.figures.samples_per_second, "fastest")


def _first_and(
    found: Comparison, most: int, badness: Callable[[Compared], float], which: str
) -> tuple[list[Compared], str]:
    """Return the runs that took a step (of many, the first and the best) and a note on the rest."""
    trained = found.trained
    if len(trained) <= most:
        return trained, ""
    best = sorted(trained[1:], key=badness)[: most - 1]
    chosen = [trained[0], *sorted(best, key=lambda each: each.number)]
    said = f" Drawn: of {len(trained):,} runs the first and the {most - 1} {which}."
    return chosen, said


def _label(each: Compared) -> str:
    return f"{each.number}: {plain(each.name)}"


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
