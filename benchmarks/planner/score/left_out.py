"""Whole tables left out: how a form of the model is chosen, and the catalog's intervals earned. See
README.md."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.planner.score.cases import Case, chosen, grouped
from benchmarks.planner.score.divided import SWEEPS_DIVIDED
from benchmarks.planner.score.intervals import interval_score, quantile_of_tables
from benchmarks.planner.score.scale_out import SCALE_OUT, SMALL
from benchmarks.planner.score.scoring import Row, time_row
from benchmarks.planner.score.tables import SWEEPS
from paceline.cluster.collectives import Array
from paceline.plan.calibration.calibrate import CATALOG_WIDTH, Fit, from_priors, posterior

TABLES: dict[str, Callable[[Path], list[Case]]] = SWEEPS | SCALE_OUT | SMALL
"""Tables that are fitted to; those of `SWEEPS_DIVIDED` are only predicted."""


@dataclass(frozen=True)
class LeftOut:
    """A table, or the rows of a kind of device, predicted without its rows."""

    row: Row
    errors: Array
    """log(measured / predicted)."""
    spreads: Array
    """Standard deviations that the catalog's priors give the rows."""
    devices: tuple[str, ...]

    @property
    def sizes(self) -> Array:
        """Errors in standard deviations."""
        return np.abs(self.errors) / self.spreads


def left_out_scores(data: Path) -> dict[str, list[Row]]:
    """Every row of each table, predicted by a fit to the calibration rows of all others; the share
    of rows within an interval whose width is from the others; and that width from all tables."""
    tables = _tables(data)
    rows = [_with_coverage(each, tables) for each in tables]
    kinds = _by_device(tables)
    return {
        "time": [
            *rows,
            mean_row("mean of tables", rows[: len(TABLES)]),
            mean_row("mean with contexts and experts", rows),
            *(_with_coverage(each, kinds) for each in kinds),
        ],
        "width": [
            {
                "table": "interval of the catalog",
                "earned": quantile_of_tables([each.sizes for each in tables], unseen=False),
                "shipped": CATALOG_WIDTH,
            }
        ],
    }


def mean_row(name: str, rows: Sequence[Row]) -> Row:
    """The mean over tables, by which forms are compared."""
    means = {
        column: sum(float(row[column] or 0.0) for row in rows) / len(rows)
        for column in ("mean", "median", "null_mean", "null_median", "coverage", "interval_score")
    }
    return {"table": name, "mode": "", "rows": len(rows), **means}


def _tables(data: Path) -> list[LeftOut]:
    timed = {
        name: [each for each in read(data) if each.step_seconds]
        for name, read in (TABLES | SWEEPS_DIVIDED).items()
    }
    known = {name: _known(timed[name]) for name in TABLES}
    fits: dict[str | None, Fit] = {}
    found = []
    for name, cases in timed.items():
        others = [each for table, some in known.items() if table != name for each in some]
        left = name if name in known else None
        if left not in fits:
            fits[left] = posterior([steps for _, steps in grouped(others)])
        row = time_row(name, f"left out, {len(others)} others", fits[left], cases, cases, {})
        found.append(_left_out(row, fits[left], cases))
    return found


def _left_out(row: Row, found: Fit, cases: list[Case]) -> LeftOut:
    errors, spreads = np.zeros(len(cases)), np.zeros(len(cases))
    catalog = from_priors()
    for members, steps in grouped(cases):
        seconds, _, _ = found.predict(steps)
        middle, low, _ = catalog.predict(steps)
        errors[members] = np.log(steps.seconds / seconds)
        spreads[members] = np.log(middle / low) / catalog.width
    return LeftOut(row, errors, spreads, tuple(each.device for each in cases))


def _by_device(tables: Sequence[LeftOut]) -> list[LeftOut]:
    """The same errors by kind of device."""
    errors: dict[str, list[float]] = defaultdict(list)
    spreads: dict[str, list[float]] = defaultdict(list)
    for table in tables:
        for kind, error, spread in zip(table.devices, table.errors, table.spreads, strict=True):
            errors[kind].append(float(error))
            spreads[kind].append(float(spread))
    return [
        LeftOut(
            {
                "table": f"width without {kind}",
                "mode": "",
                "rows": len(errors[kind]),
                "mean": float(np.mean(np.abs(np.expm1(-np.array(errors[kind]))))),
            },
            np.array(errors[kind]),
            np.array(spreads[kind]),
            (kind,),
        )
        for kind in errors
    ]


def _with_coverage(left: LeftOut, every: Sequence[LeftOut]) -> Row:
    """With the share of rows inside an interval whose width is from all others."""
    others = [each.sizes for each in every if each is not left]
    width = quantile_of_tables(others, unseen=False)
    return left.row | {
        "coverage": float(np.mean(left.sizes <= width)),
        "interval_score": interval_score(left.errors, width * left.spreads),
    }


def _known(cases: Sequence[Case]) -> list[Case]:
    keys = chosen(cases)
    return [each for each in cases if each.key in keys]
