"""Score the planner on published measurements, and on any case file, beside a null model.

`README.md` in this folder says which rows the model may see; it was written before any tuning.
Every figure is a prediction against what others measured and published: nothing is run here.
"""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.planner.score.case_files import HEADER, OPTIONAL, read_cases
from benchmarks.planner.score.cases import DATA, chosen
from benchmarks.planner.score.divided import MEMORY_DIVIDED, SWEEPS_DIVIDED
from benchmarks.planner.score.energy import energy_rows
from benchmarks.planner.score.left_out import left_out_scores
from benchmarks.planner.score.memory_margins import margin_rows
from benchmarks.planner.score.scale_out import LAST_STAGE, MEMORY, SCALE_OUT
from benchmarks.planner.score.scoring import LARGE, SCALE, Row, memory_row, scale_out, sweep
from benchmarks.planner.score.tables import SWEEPS
from benchmarks.planner.score.training import minutes_rows, planned_row, samples_rows
from paceline.specs import PacelineError

PERCENT = {
    "mean": "mean error",
    "median": "median",
    "null_mean": "null mean",
    "null_median": "null median",
    "coverage": "in 90 % interval",
    "regret_mean": "regret mean",
    "regret_max": "regret max",
    "null_regret_mean": "null regret",
    "max": "max error",
    "bias": "bias",
    "below": "below, left out",
}
COUNTS = {
    "rows": "rows",
    "groups": "groups",
    "oom_rows": "OOM rows",
    "oom_missed": "OOM missed",
    "false_alarms": "ran, said not to fit",
    "low": "lower",
    "high": "upper",
    "shipped_low": "lower in the engine's file",
    "shipped_high": "upper",
    "earned": "earned width",
    "shipped": "shipped",
    "interval_score": "interval score",
}
TIME = (
    "rows",
    "mean",
    "median",
    "null_mean",
    "null_median",
    "coverage",
    "interval_score",
    "groups",
    "regret_mean",
    "regret_max",
    "null_regret_mean",
)
BYTES = (
    "rows",
    "mean",
    "median",
    "max",
    "bias",
    "coverage",
    "oom_rows",
    "oom_missed",
    "false_alarms",
)
WIDTH = ("earned", "shipped")
MARGINS = ("groups", "rows", "low", "high", "shipped_low", "shipped_high", "below")
WHOLE = ("rows", "mean", "median", "max", "null_mean", "null_median")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="published tables: %(default)s")
    parser.add_argument(
        "--cases", type=Path, help=f"CSV with the columns {HEADER}; or also {OPTIONAL}"
    )
    parser.add_argument(
        "--left-out", action="store_true", help="predict each table by a fit to all others"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        if options.left_out:
            scores = score_left_out(options.data)
        else:
            scores = score_cases(options.cases) if options.cases else score_tables(options.data)
    except PacelineError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps(scores, indent=2))
    else:
        _print(scores)


def score_cases(path: Path) -> dict[str, list[Row]]:
    """One file that nobody tuned on, with the catalog only and with some of its rows."""
    cases, unknown = read_cases(path)
    time = [sweep(path.name, cases, fitted=False)]
    if sum(each.step_seconds is not None for each in cases) >= 3:
        time.append(sweep(path.name, cases, fitted=True))
    found = memory_row(path.name, cases)
    if unknown:
        print(f"left out: {unknown} rows that divide unknown experts", file=sys.stderr)
    return {"time": time, "memory": [found] if found else []}


def score_left_out(data: Path) -> dict[str, list[Row]]:
    """Each published table by a fit to the others, whose mean compares forms; what intervals and
    margins of memory are earned by that."""
    _check(data)
    return left_out_scores(data) | {"margins": margin_rows(data)}


def score_tables(data: Path) -> dict[str, list[Row]]:
    """All published tables."""
    _check(data)
    time = []
    for name, read in (SWEEPS | SWEEPS_DIVIDED).items():
        cases = read(data)
        time += [sweep(name, cases, fitted) for fitted in (False, True)]
    for name, read in SCALE_OUT.items():
        cases = read(data)
        time.append(scale_out(f"{name}, > {SCALE}", cases, SCALE + 1))
        time.append(scale_out(f"{name}, >= {LARGE}", cases, LARGE))
    rows = []
    for name, read in (MEMORY | MEMORY_DIVIDED).items():
        cases = [each for each in read(data) if each.memory_bytes or each.out_of_memory]
        seen = chosen(cases)
        tested = [each for each in cases if each.key not in seen]
        rows.append(memory_row(name, tested, name in LAST_STAGE))
    training = [*samples_rows(data), *minutes_rows(data), planned_row(data), *energy_rows(data)]
    return {"time": time, "memory": [row for row in rows if row], "training": training}


def _check(data: Path) -> None:
    if not data.is_dir():
        raise PacelineError(f"{data} does not exist", fix="give the tables' folder with --data")


def _print(scores: dict[str, list[Row]]) -> None:
    console = Console(width=200)
    tables = (
        ("time", ("mode", *TIME)),
        ("memory", BYTES),
        ("width", WIDTH),
        ("margins", MARGINS),
        ("training", ("mode", *WHOLE)),
    )
    for title, columns in tables:
        if not scores.get(title):
            continue
        table = Table(title=f"{title}: predicted against published measurements")
        table.add_column("table")
        for column in columns:
            heading = PERCENT.get(column) or COUNTS.get(column) or column
            table.add_column(heading, justify="left" if column == "mode" else "right")
        for row in scores[title]:
            table.add_row(
                str(row["table"]), *(_cell(column, row.get(column)) for column in columns)
            )
        console.print(table)


def _cell(column: str, value: float | str | None) -> str:
    if value is None:
        return "-"
    if column in PERCENT:
        return f"{100 * float(value):.1f} %"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
