"""Whole tables left out: how a form of the model is chosen. See README.md."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.planner.score.cases import Case, chosen, grouped
from benchmarks.planner.score.scale_out import SCALE_OUT, SMALL
from benchmarks.planner.score.scoring import Row, time_row
from benchmarks.planner.score.tables import SWEEPS
from paceline.plan.calibration.calibrate import posterior

TABLES: Mapping[str, Callable[[Path], list[Case]]] = SWEEPS | SCALE_OUT | SMALL


def left_out_rows(data: Path) -> list[Row]:
    """Every row of each table, predicted by a fit to the calibration rows of all others."""
    timed = {
        name: [each for each in read(data) if each.step_seconds] for name, read in TABLES.items()
    }
    known = {name: _known(cases) for name, cases in timed.items()}
    rows = []
    for name, cases in timed.items():
        others = [each for table, some in known.items() if table != name for each in some]
        found = posterior([steps for _, steps in grouped(others)])
        rows.append(time_row(name, f"left out, {len(others)} others", found, cases, cases, {}))
    return rows


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean over tables, by which forms are compared."""
    means = {
        name: sum(float(row[name] or 0.0) for row in rows) / len(rows)
        for name in ("mean", "median", "null_mean", "null_median", "coverage")
    }
    return {"table": "mean of tables", "mode": "", "rows": len(rows), **means}


def _known(cases: Sequence[Case]) -> list[Case]:
    keys = chosen(cases)
    return [each for each in cases if each.key in keys]
