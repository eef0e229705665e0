"""How well does the law of the critical batch describe published trainings?

With the batch B, a training takes E (1 + B / C) samples to its target, and so S (1 + C / B) steps,
with the critical batch C. MLPerf has trainings to a target with many batches, each with
hyperparameters of its own: reference convergence points, and submissions. For each benchmark with
at least four batches, the law is fitted to all of them (in sample), and to the smaller half alone
to predict the larger (extrapolated): E and C have the least mean relative error. The null model has
the same samples at every batch, fitted likewise. Errors are means over batches. Nothing is run.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console

from benchmarks.common.output import argument_parser, table
from benchmarks.planner.score.cases import rows_of
from benchmarks.planner.score.learning import Line, closest_line
from paceline.cluster.collectives import Array

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "published"
FEWEST_BATCHES = 4
RENAMED = {"ssd": "retinanet", "gnn": "rgat"}
"""Benchmarks whose name changed between rounds."""
OTHER_UNIT = 10.0
"""Some logs count epochs where others count samples: rows that far from the median are left out."""

Points = list[tuple[float, float]]
"""Batch, and samples to the target in any unit, by batch."""


@dataclass(frozen=True)
class Score:
    """The errors of the law and of the null model for a benchmark."""

    source: str
    benchmark: str
    batches: int
    smallest: float
    largest: float
    critical: float | None
    """None where the samples do not grow with the batch."""
    error: float
    null_error: float
    beyond: float
    """The largest batch over the largest of the smaller half."""
    extrapolated: float
    null_extrapolated: float


def reference_points(rows: Iterable[Mapping[str, str]]) -> dict[str, Points]:
    """Return the points of `mlperf_rcp_batch.csv`, each benchmark's of its newest round."""
    return _points(
        (row["benchmark"], row["batch_size"], row["mean"]) for row in rows if row["latest"] == "1"
    )


def submitted_points(rows: Iterable[Mapping[str, str]]) -> dict[str, Points]:
    """Return the points of `mlperf_training_v31_v40_v50.csv`: medians of submissions by batch."""
    return _points(
        (row["benchmark"], row["global_batch"], row["last_eval_samples"])
        for row in rows
        # Submissions of power are those of time once more.
        if row["global_batch"] and row["last_eval_samples"] and not row["org"].endswith("-power")
    )


def _points(rows: Iterable[tuple[str, str, str]]) -> dict[str, Points]:
    found: dict[str, Points] = defaultdict(list)
    for name, batch, samples in rows:
        found[RENAMED.get(name, name)].append((float(batch), float(samples)))
    return {name: _by_batch(points) for name, points in found.items()}


def _by_batch(points: Points) -> Points:
    usual = median(samples for _, samples in points)
    found: dict[float, list[float]] = defaultdict(list)
    for batch, samples in points:
        if usual / OTHER_UNIT < samples < usual * OTHER_UNIT:
            found[batch].append(samples)
    return [(batch, median(found[batch])) for batch in sorted(found)]


def scored(source: str, benchmark: str, points: Points) -> Score | None:
    """Return the errors for a benchmark; None if it has too few batches."""
    if len(points) < FEWEST_BATCHES:
        return None
    batches, samples = np.array(points).T
    half = (len(points) + 1) // 2
    law, constant = closest_line(batches, samples), _closest_constant(samples)
    known, null_known = (
        closest_line(batches[:half], samples[:half]),
        _closest_constant(samples[:half]),
    )
    beyond = batches[half:], samples[half:]
    return Score(
        source=source,
        benchmark=benchmark,
        batches=len(points),
        smallest=float(batches[0]),
        largest=float(batches[-1]),
        critical=law.start / law.slope if law.slope else None,
        error=_error(law, batches, samples),
        null_error=_error(constant, batches, samples),
        beyond=float(batches[-1] / batches[half - 1]),
        extrapolated=_error(known, *beyond),
        null_extrapolated=_error(null_known, *beyond),
    )


def _closest_constant(samples: Array) -> Line:
    constants = [Line(float(each), 0.0) for each in samples]
    return min(constants, key=lambda each: _error(each, samples, samples))


def _error(law: Line, batches: Array, samples: Array) -> float:
    return float(np.abs(law.at(batches) / samples - 1.0).mean())


def scores(data: Path) -> list[Score]:
    """Return the errors for each benchmark of both tables."""
    sources = {
        "reference": reference_points(rows_of(data / "mlperf_rcp_batch.csv")),
        "submissions": submitted_points(rows_of(data / "mlperf_training_v31_v40_v50.csv")),
    }
    found = (
        scored(source, benchmark, points)
        for source, benchmarks in sources.items()
        for benchmark, points in sorted(benchmarks.items())
    )
    return [each for each in found if each is not None]


def shown(found: list[Score]) -> None:
    """Print a row for each benchmark, and the medians of each table."""
    made = table(
        "Samples to target by batch: errors of the law, and of constant samples (null)",
        *("source", "benchmark", "batches", "critical batch", "in sample", "null"),
        *("× beyond", "extrapolated", "null"),
        texts=2,
    )
    for each in found:
        critical = "–" if each.critical is None else f"{each.critical:,.0f}"
        sizes = f"{each.batches}: {each.smallest:,.0f}–{each.largest:,.0f}"
        made.add_row(each.source, each.benchmark, sizes, critical, *_errors([each]))
    for source in dict.fromkeys(each.source for each in found):
        mine = [each for each in found if each.source == source]
        made.add_section()
        made.add_row(source, "median", f"{len(mine)} benchmarks", "", *_errors(mine))
    Console().print(made)


def _errors(found: list[Score]) -> list[str]:
    return [
        f"{median(each.error for each in found):.1%}",
        f"{median(each.null_error for each in found):.1%}",
        f"{median(each.beyond for each in found):.1f}",
        f"{median(each.extrapolated for each in found):.1%}",
        f"{median(each.null_extrapolated for each in found):.1%}",
    ]


def main() -> None:
    """Fit the law to both tables and print its errors."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="published tables: %(default)s")
    parser.add_argument("--json", type=argparse.FileType("w"), help="write all rows to this file")
    options = parser.parse_args()
    found = scores(options.data)
    shown(found)
    if options.json:
        json.dump([asdict(each) for each in found], options.json, indent=1)


if __name__ == "__main__":
    main()
