"""The points of a study in numbers: flat rows, a table for a paper, and how to name them."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from paceline.report.drawing.tables import Table
from paceline.report.reading.failure_cause import plain
from paceline.specs import Interval, Limit, Measured, Point, PointResult, Study, StudyResult, units

Value = str | int | float | None
Row = dict[str, Value]
USUAL_BOUND = 0.8


def study_rows(result: StudyResult) -> list[Row]:
    """Return one row per point; a value that was not measured is None."""
    return [
        {
            **point_columns(each),
            **_columns("samples_per_second", each.samples_per_second),
            **_columns("speedup", each.speedup),
            "efficiency": each.efficiency.value if each.efficiency else None,
            "predicted_samples_per_second": each.predicted_samples_per_second,
            "step_seconds": fmean(run.step_seconds for run in each.runs) if each.runs else None,
            "limit": limit_of(each.runs),
            "runs": len(each.runs),
        }
        for each in result.points
    ]


def point_columns(each: PointResult) -> Row:
    """Return the columns that identify a point."""
    return {
        "workers": each.point.workers,
        "nodes": each.point.nodes,
        "devices_per_node": each.point.devices_per_node,
        "family": each.point.family,
        "batch": each.runs[0].batch if each.runs else None,
    }


def study_table(result: StudyResult) -> Table:
    """Return the points as a formatted table."""
    study, rows = result.study, study_rows(result)
    several = any(each.point.family for each in result.points)
    lines = [
        [
            each.point.where,
            *[each.point.family or "–"] * several,
            _cell(row["workers"], "{:,}".format),
            _cell(row["batch"], "{:,}".format),
            _with_interval(row, "samples_per_second", units.rate),
            _with_interval(row, "speedup", factor),
            _cell(row["efficiency"], units.percent),
            _cell(row["step_seconds"], units.milliseconds),
            str(row["limit"] or "–"),
        ]
        for row, each in zip(rows, result.points, strict=True)
    ]
    names = ["Where", *["Family"] * several, "Workers", "Batch", "Samples/s", "Speed-up"]
    names += ["Efficiency", "Step (ms)", "Limit"]
    intervals = any(row["speedup_low"] is not None for row in rows)
    caption = f"{study.name}: {study.kind} scaling of {study.train.name}, measured {where(study)}"
    caption += f", {units.count(study.repeat, 'run')} of each point"
    caption += "; in brackets: 95 % intervals over the runs." if intervals else "; no intervals."
    return Table("Points", names, lines, ("Where", "Family", "Limit"), caption)


def bound_of(result: StudyResult) -> float:
    """Return the efficiency below which the study considers scaling poor."""
    return result.reaches[0].bound if result.reaches else USUAL_BOUND


def limit_of(runs: Sequence[Measured]) -> Limit | None:
    """Return the limit that most runs name; in a tie, the one named first."""
    return Counter(run.limit for run in runs).most_common(1)[0][0] if runs else None


def point_names(points: Sequence[Point]) -> list[str]:
    """Name each point, as `8 nodes, sync=local:every=8`; the batch distinguishes equal names."""
    names = [plain(", ".join(filter(None, (each.where, each.family)))) for each in points]
    often = Counter(names)
    return [
        name if often[name] == 1 else f"{name}, {each.batch_times} x the batch"
        for name, each in zip(names, points, strict=True)
    ]


def where(study: Study) -> str:
    """Return where the study ran: `here`, `on Slurm`, `on the testbed box`."""
    return "here" if study.cluster == "here" else f"on {plain(study.cluster)}"


def factor(value: float) -> str:
    """Format as `6.67`, `43.1` or `1,204`."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def exact_percent(share: float) -> str:
    """Format as `83.4 %`, for intervals with ends that lie close together."""
    return f"{100 * share:.1f} %"


def between(found: Interval, form: Callable[[float], str]) -> str:
    """Format as `6.52 to 6.81`; empty without an interval."""
    if found.low is None or found.high is None:
        return ""
    return f"{form(found.low)} to {form(found.high)}"


def _columns(name: str, found: Interval | None) -> Row:
    return {
        name: found.value if found else None,
        f"{name}_low": found.low if found else None,
        f"{name}_high": found.high if found else None,
    }


def _cell(value: Value, form: Callable[[float], str]) -> str:
    return "–" if value is None or isinstance(value, str) else form(value)


def _with_interval(row: Row, name: str, form: Callable[[float], str]) -> str:
    value = _cell(row[name], form)
    if row[f"{name}_low"] is None:
        return value
    return f"{value} [{_cell(row[f'{name}_low'], form)}, {_cell(row[f'{name}_high'], form)}]"
