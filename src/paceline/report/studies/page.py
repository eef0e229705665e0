"""A scaling study as one self-contained HTML file: its results, its limits and the findings."""

import textwrap
from collections.abc import Callable
from statistics import fmean
from types import ModuleType

from paceline.report.drawing.brief import Brief, Tile
from paceline.report.drawing.chart import Chart, drawing_packages, finish, named_bars
from paceline.report.drawing.templates import environment, javascript
from paceline.report.reading.failure_cause import plain
from paceline.report.run.step_breakdown import COLORS, MEANINGS, MOST_BARS, meanings, part_colors
from paceline.report.studies.scaling_charts import over_workers
from paceline.report.studies.study_tables import (
    between,
    bound_of,
    exact_percent,
    factor,
    limit_of,
    point_names,
    study_rows,
    study_table,
    where,
)
from paceline.specs import (
    Interval,
    Limit,
    Measured,
    Part,
    Point,
    PointResult,
    Reach,
    StudyResult,
    units,
)
from paceline.specs.measurements.study import FARTHEST, families

MOST_RUNS = 200
MOST_FAILURES = 20
MOST_CHARACTERS = 200
"""Maximum length of a message before it is cut."""
BAD_EFFICIENCY = 0.5
COMPUTING: tuple[Part, ...] = ("forward", "backward", "pipeline", "optimizer")
LAW_NAMES = {
    "amdahl": "Amdahl (1967)",
    "gustafson": "Gustafson (1988)",
    "usl": "Universal Scalability Law (Gunther 1993)",
}


def render_study(result: StudyResult) -> str:
    """Return the study's page as self-contained HTML that loads nothing else."""
    named = _named(result)
    runs = [(name, run) for name, each in named for run in each.runs]
    failures = [(name, why) for name, each in named for why in each.failures]
    said = study_brief(result)
    pages = environment()
    pages.globals.update(rate=units.rate, loss=units.loss, factor=factor)
    pages.globals.update(percent=units.percent, exact_percent=exact_percent)
    return pages.get_template("study.html.jinja").render(
        study=result.study,
        result=result,
        said=said,
        pictures=said.pictures,
        javascript=javascript(drawing_packages()[1]) if said.pictures else "",
        points=[(*pair, row) for pair, row in zip(named, study_rows(result), strict=True)],
        predicted=any(each.predicted_samples_per_second for each in result.points),
        law_names=LAW_NAMES,
        reaches=[(reach, _end(result, reach)) for reach in result.reaches],
        several=len(families(result.points)) > 1,
        failures=failures[:MOST_FAILURES],
        all_failures=len(failures),
        runs=runs[:MOST_RUNS],
        all_runs=len(runs),
    )


def study_brief(result: StudyResult) -> Brief:
    """Return the study's key results, independent of the output format."""
    return Brief(
        title=result.study.name,
        sentence=_sentence(result),
        tiles=_tiles(result),
        pictures=_pictures(result),
        tables=[study_table(result)],
        remarks=result.findings,
        notes=_notes(result),
    )


def _pictures(result: StudyResult) -> list[Chart]:
    """Return the study's charts; empty if no run has finished."""
    if _headline(result) is None:
        return []
    altair, _ = drawing_packages()
    first, second, *others = over_workers(result, altair)
    return [first, second, *_parts_picture(result, altair), *others]


def _named(result: StudyResult) -> list[tuple[str, PointResult]]:
    names = point_names([each.point for each in result.points])
    return list(zip(names, result.points, strict=True))


def _headline(result: StudyResult) -> PointResult | None:
    """Return the point with the most workers; among several, the fastest."""
    finished = [each for each in result.points if each.samples_per_second]
    return max(finished, key=lambda each: (each.point.workers, _rate(each)), default=None)


def _rate(each: PointResult) -> float:
    return each.samples_per_second.value if each.samples_per_second else 0.0


def _sentence(result: StudyResult) -> str:
    study = result.study
    what = study.train.name + f":{study.function}" * (study.function != "training")
    batch = {"strong": "the same batch on more workers", "weak": "a batch that grows with workers"}
    finished = sum(len(each.runs) for each in result.points)
    words = (
        f"{study.kind.capitalize()} scaling ({batch[study.kind]}) of {what}, measured"
        f" {where(study)}: {finished:,} of {_planned(result):,} runs finished, {study.steps:,}"
        f" steps each; figures exclude the first {study.warm_up:,}."
    )
    best = _headline(result)
    if best and len({each.point.family for each in result.points}) > 1:
        words += f" The figures are those of {best.point.family}, fastest on the most workers."
    return words


def _planned(result: StudyResult) -> int:
    return len(result.study.points) * result.study.repeat


def _tiles(result: StudyResult) -> list[Tile]:
    best = _headline(result)
    if best is None or best.speedup is None or best.efficiency is None:
        return [("Speed-up", "–", "no run has finished", "failed")]
    fastest = max(result.points, key=_rate)
    assert fastest.samples_per_second is not None
    efficiency = best.efficiency.value
    found = best.efficiency
    ends = {_grade(end, bound_of(result)) for end in (found.low, found.high) if end is not None}
    grade = ends.pop() if len(ends) == 1 else ""  # no color that the interval does not support
    return [
        ("Speed-up", f"{factor(best.speedup.value)} x", _small(best, best.speedup, factor), ""),
        (
            "Efficiency",
            units.percent(efficiency),
            between(best.efficiency, exact_percent) or "of ideal",
            grade,
        ),
        ("Limited by", *_limit(best), ""),
        ("Scales to", *_reach(result, best), ""),
        (
            "Samples per second",
            units.rate(_rate(fastest)),
            _small(fastest, fastest.samples_per_second, units.rate),
            "",
        ),
    ]


def _grade(efficiency: float, bound: float) -> str:
    if efficiency < BAD_EFFICIENCY:
        return "failed"
    return "finished" if efficiency >= bound else "slow"


def _small(each: PointResult, found: Interval, form: Callable[[float], str]) -> str:
    around = between(found, form) or "one run" * (len(each.runs) == 1)
    return ", ".join(filter(None, (f"on {each.point.where}", around)))


def _limit(each: PointResult) -> tuple[str, str]:
    limit = limit_of(each.runs)
    if limit is None:
        return "–", ""
    named = [run for run in each.runs if run.limit == limit]
    shares = [share for run in named if (share := _share(run, limit)) is not None]
    words = []
    if shares:
        waiting = " is waiting for it" * (limit == "slow worker")
        words.append(f"{units.percent(fmean(shares))} of a step{waiting}")
    if len(named) < len(each.runs):
        words.append(f"in {len(named)} of {len(each.runs)} runs")
    return limit.capitalize(), ", ".join(words)


def _share(run: Measured, limit: Limit) -> float | None:
    """Return the limit's share of a step, or None if the run has no step breakdown."""
    whole = sum(run.seconds.values())
    if not whole:
        return None
    waiting = run.seconds.get("communication", 0.0) - run.network_seconds
    lost: dict[Limit, float] = {
        "compute": sum(run.seconds.get(part, 0.0) for part in COMPUTING),
        "data": run.seconds.get("data", 0.0),
        "network": run.network_seconds,
        "slow worker": waiting,
        "uneven steps": waiting,
        "checkpoints": run.seconds.get("checkpoint", 0.0),
        "other": run.seconds.get("other", 0.0),
    }
    return lost[limit] / whole


def _reach(result: StudyResult, best: PointResult) -> tuple[str, str]:
    on = [family for family, members in families(result.points).items() if best in members]
    found = next((each for each in result.reaches if each.family in on), None)
    if found is None:
        return "–", "too few points to say"
    if best.repeats_needed is not None:
        return "–", f"too noisy to say: repeat with --repeat {best.repeats_needed}"
    small = f"at {units.percent(found.bound)} efficiency"
    if found.peak_workers:
        small += f"; fastest on {found.peak_workers:,}"
    return _end(result, found), small


def _end(result: StudyResult, reach: Reach) -> str:
    if reach.workers is not None:
        return units.count(reach.workers, "worker")
    most = families(result.points)[reach.family][-1].point.workers
    return f"beyond {FARTHEST * most:,}"


def _notes(result: StudyResult) -> list[str]:
    """Return warnings that affect how far the figures can be trusted."""
    repeat, notes, absent = result.study.repeat, [], []
    for name, each in _named(result):
        lacking = repeat - len(each.runs)
        if each.failures:
            # Runs that fail alike are recorded as one failure, so count the finished runs.
            why = textwrap.shorten(plain(each.failures[0]), MOST_CHARACTERS, placeholder=" …")
            done = f"only {len(each.runs)} of" if each.runs else "none of"
            notes.append(f"{name}: {done} {units.count(repeat, 'run')} finished – {why}")
        elif lacking > 0:
            absent.append(f"{name} ({units.count(lacking, 'run')})")
    if len(notes) > MOST_FAILURES:
        others = units.count(len(notes) - MOST_FAILURES, "other point")
        notes[MOST_FAILURES:] = [f"Runs failed on {others}."]
    known = {_key(each.point) for each in result.points}
    absent += point_names([each for each in result.study.points if _key(each) not in known])
    if absent:
        others = units.count(len(absent) - MOST_FAILURES, "other point")
        more = f" and {others}" * (len(absent) > MOST_FAILURES)
        notes.append(f"Not run yet: {'; '.join(absent[:MOST_FAILURES])}{more}.")
    if len({each.point.workers for each in result.points if each.runs}) == 1:
        notes.append("Only one number of workers was measured: there is no speed-up to compute.")
    return notes


def _key(point: Point) -> tuple[int, int, str, int]:
    return point.nodes, point.devices_per_node, point.family, point.batch_times


def _parts_picture(result: StudyResult, altair: ModuleType) -> list[Chart]:
    """Return a chart with a bar per point, divided by step breakdown."""
    known = [(name, means) for name, each in _named(result) if (means := _mean_parts(each))]
    if not known:
        return []
    # Take the first, the last, and evenly spaced points between them.
    last = min(MOST_BARS, len(known)) - 1
    shown = [known[round(at * (len(known) - 1) / max(1, last))] for at in range(last + 1)]
    order = [part for part in COLORS if any(part in means for _, means in shown)]
    rows = [
        {
            "point": name,
            "part": part,
            "order": order.index(part),
            "share": float(f"{seconds / sum(means.values()):.5g}"),
            "ms": units.milliseconds(seconds),
            "meaning": MEANINGS[part],
        }
        for name, means in shown
        for part, seconds in means.items()
    ]
    tooltip = {"point": "on", "part": "part", "meaning": "which", "ms": "ms of a step"}
    label = "A bar for each point, divided into the parts of its step time"
    chart = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("share:Q", title="Share of a step", stack="zero")
        .scale(domain=[0, 1])
        .axis(format=".0%"),
        order="order:O",
        color=part_colors(order, altair),
        tooltip=[altair.Tooltip(f"{key}:N", title=title) for key, title in tooltip.items()],
    )
    drawn = named_bars(chart, "point", len(shown), altair)
    caption = f"Mean over the workers and the runs of each point. Parts: {meanings(order)}."
    if len(shown) < len(known):
        caption += f" Drawn: {len(shown)} of {len(known):,} points, at even distances."
    return [Chart("parts", "Step breakdown", caption, label, finish(drawn, label))]


def _mean_parts(each: PointResult) -> dict[Part, float]:
    if not each.runs:
        return {}
    parts = {part: fmean(run.seconds.get(part, 0.0) for run in each.runs) for part in COLORS}
    return {part: seconds for part, seconds in parts.items() if seconds > 0}
