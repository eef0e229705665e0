"""The timeline of a run: its faults, and how many workers trained at each time.

One view with lanes above and the workers below, on one time axis, because Vega-Lite cannot fit two
stacked views to the width of a page.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from paceline.report.drawing.chart import BLUE, FAMILY_COLORS, GREEN, VERMILION, Chart, finish
from paceline.report.reading.failure_cause import plain
from paceline.report.reading.run_state import RunState
from paceline.report.run.fault_history import FaultEvent, FaultFigures
from paceline.specs import units

SLOTS = 100
"""Events of a lane within 1/SLOTS of the time share one mark."""
LANE_PIXELS = 30
WORKERS_LANES = 2
"""Height of the worker plot, in lanes."""
PINK, AMBER = FAMILY_COLORS[3], FAMILY_COLORS[4]
LANES: dict[str, str] = {
    "lost": VERMILION,
    "failed": VERMILION,
    "refused": PINK,
    "slow": AMBER,
    "not saved": AMBER,
    "damaged": VERMILION,
    "interrupted": VERMILION,
    "regrouped": BLUE,
    "joined": GREEN,
    "saved": GREEN,
}
"""Lanes from top to bottom, each with its color."""
UNITS = [("Days", 86400.0, 3 * 86400.0), ("Hours", 3600.0, 7200.0), ("Minutes", 60.0, 120.0)]
"""Time units with their length in seconds and the minimum duration to use them."""
Row = dict[str, float | int | str]


@dataclass(frozen=True)
class _Mark:
    lane: str
    seconds: float
    """Seconds since the first step."""
    step: int | None
    who: str
    why: str = ""


def timeline_picture(state: RunState, figures: FaultFigures, altair: ModuleType) -> Chart:
    """Return the timeline of a run with at least one fault."""
    began = state.first_step_time or 0.0
    marks = list(_marks(state, figures, began))
    first = min(0.0, *(mark.seconds for mark in marks))
    last = max(figures.goodput.wall_seconds, 1e-3, *(mark.seconds for mark in marks))
    unit, scale = next(
        ((name, size) for name, size, least in UNITS if last - first >= least), ("Seconds", 1.0)
    )
    lanes = [lane for lane in LANES if any(mark.lane == lane for mark in marks)]
    rows = _rows(_groups(marks, first, last), lanes, scale)
    away = [
        {"begin": (each.at - began) / scale, "end": (each.back_at - began) / scale}
        for each in state.interruptions
        # Shorter ones are thinner than a line.
        if each.back_at is not None and each.back_at - each.at > (last - first) / 1000
    ]
    counts = _workers(state, began, last)
    most = max(figures.planned_workers, *(round(count) for _, count in counts), 1)
    time = {
        "title": f"{unit} since the first step",
        "scale": altair.Scale(domain=[first / scale, last / scale], nice=False),
    }
    y = _lanes_axis(lanes, most, altair)
    layers = [_shaded(away, time, altair)] if away else []
    layers += [_trained(counts, most, scale, time, y, altair), _events(rows, unit, time, y, altair)]
    label = f"Time line of {_counted(figures)} in {units.duration(last - first)}"
    caption = (
        f"{_counted(figures).capitalize()}. Blue: workers that trained, of"
        f" {figures.planned_workers:,} planned."
    )
    if len(rows) < len(marks):
        caption += (
            f" Events of a kind within a hundredth of the time are one mark, taller for more events"
            f" ({len(marks):,} in total)."
        )
    if away:
        caption += " Shaded: no training."
    height = LANE_PIXELS * (len(lanes) + WORKERS_LANES)
    chart = altair.layer(*layers).properties(width="container", height=height)
    return Chart("time-line", "Time line", caption, label, finish(chart, label))


def _lanes_axis(lanes: list[str], most: int, altair: ModuleType) -> dict[str, Any]:
    words = {len(lanes) - number: lane for number, lane in enumerate(lanes)}
    words |= {0: units.count(most, "worker"), -WORKERS_LANES: "none"}
    axis = altair.Axis(
        values=sorted(words),
        labelExpr=f"({json.dumps(words)})[datum.value]",
        labelOverlap=False,
        tickCount=len(words),
        ticks=False,
    )
    scale = altair.Scale(domain=[-WORKERS_LANES, len(lanes) + 0.6], nice=False)
    return {"title": None, "axis": axis, "scale": scale}


def _shaded(away: list[dict[str, float]], time: dict[str, Any], altair: ModuleType) -> Any:
    return (
        altair.Chart(altair.Data(values=away))
        .mark_rect(color="currentColor", opacity=0.15, clip=True)
        .encode(x=altair.X("begin:Q", **time), x2="end")
    )


def _trained(
    counts: list[tuple[float, float]],
    most: int,
    scale: float,
    time: dict[str, Any],
    y: dict[str, Any],
    altair: ModuleType,
) -> Any:
    rows = [
        {
            "at": float(f"{seconds / scale:.6g}"),
            "height": round(WORKERS_LANES * (count / most - 1), 3),
            "base": -WORKERS_LANES,
        }
        for seconds, count in counts
    ]
    return (
        altair.Chart(altair.Data(values=rows))
        .mark_area(color=BLUE, opacity=0.45, interpolate="step-after", clip=True)
        .encode(x=altair.X("at:Q", **time), y=altair.Y("height:Q", **y), y2="base")
    )


def _events(
    rows: list[Row], unit: str, time: dict[str, Any], y: dict[str, Any], altair: ModuleType
) -> Any:
    return (
        altair.Chart(altair.Data(values=rows))
        .mark_rule(strokeWidth=2.5)
        .encode(
            x=altair.X("at:Q", **time),
            y=altair.Y("low:Q", **y),
            y2="high",
            color=altair.Color("color:N", scale=None),
            tooltip=[
                altair.Tooltip("kind:N", title="what"),
                altair.Tooltip("count:Q", title="events", format=",d"),
                altair.Tooltip("at:Q", title=unit.lower(), format=",.4~r"),
                altair.Tooltip("step:N", title="step"),
                altair.Tooltip("who:N", title="who"),
                altair.Tooltip("why:N", title="why"),
            ],
        )
    )


def _counted(figures: FaultFigures) -> str:
    found = {
        "worker": (figures.lost_workers, " lost"),
        "regroup": (figures.regroups, ""),
        "slow worker": (figures.slow_workers, ""),
        "refused step": (figures.refused_steps, ""),
    }
    return ", ".join(
        f"{units.count(number, thing)}{more}" for thing, (number, more) in found.items() if number
    )


def _marks(state: RunState, figures: FaultFigures, began: float) -> Iterator[_Mark]:
    for event in figures.events:
        yield _mark(event, event.what.replace("_", " "), began)
        if event.joined:
            yield _mark(event, "joined", began)
    for saved in state.checkpoints:
        yield _Mark("saved", saved.time - began, saved.step, "a checkpoint")


def _mark(event: FaultEvent, lane: str, began: float) -> _Mark:
    return _Mark(lane, event.time - began, event.step, event.who, event.why)


def _groups(marks: Sequence[_Mark], first: float, last: float) -> list[list[_Mark]]:
    found: dict[tuple[str, int], list[_Mark]] = {}
    for mark in marks:
        slot = int(SLOTS * (mark.seconds - first) / (last - first))
        found.setdefault((mark.lane, slot), []).append(mark)
    return list(found.values())


def _rows(groups: list[list[_Mark]], lanes: list[str], scale: float) -> list[Row]:
    highest = max(map(len, groups))
    rows: list[Row] = []
    for group in groups:
        one, place = group[0], len(lanes) - lanes.index(group[0].lane)
        # The largest group fills the lane; a single event stays visible.
        reach = 0.3 if highest == 1 else 0.12 + 0.3 * len(group) / highest
        seconds = sum(mark.seconds for mark in group) / len(group)
        rows.append(
            {
                "kind": one.lane,
                "color": LANES[one.lane],
                "at": float(f"{seconds / scale:.6g}"),
                "low": round(place - reach, 3),
                "high": round(place + reach, 3),
                "count": len(group),
                "step": "–" if one.step is None else f"{one.step:,}",
                "who": plain(one.who),
                "why": plain(one.why)[:200],
            }
        )
    return rows


def _workers(state: RunState, began: float, last: float) -> list[tuple[float, float]]:
    """Return (second, number of workers) at each change; of many changes, the mean of each slot."""
    found = state.interruptions
    changes: list[tuple[float, float]] = [
        (0.0, float((found[0].workers if found else state.number_of_workers) or 0))
    ]
    for each in found:
        changes.append((max(changes[-1][0], each.at - began), 0.0))
        if each.back_at is not None:
            count = float(each.workers_after or 0)
            changes.append((max(changes[-1][0], each.back_at - began), count))
    changes.append((max(changes[-1][0], last), changes[-1][1]))
    return changes if len(changes) <= 4 * SLOTS else _means(changes, 4 * SLOTS)


def _means(changes: list[tuple[float, float]], slots: int) -> list[tuple[float, float]]:
    import numpy as np  # noqa: PLC0415

    times, counts = np.asarray(changes).T
    worked = np.concatenate([[0.0], np.cumsum(counts[:-1] * np.diff(times))])
    edges = np.linspace(times[0], times[-1], slots + 1)
    # Two changes at the same time enclose no time, so either sum is right.
    means = np.diff(np.interp(edges, times, worked)) / np.diff(edges)
    return [*zip(edges[:-1].tolist(), means.tolist(), strict=True), (edges[-1], means[-1])]
