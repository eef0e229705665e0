"""Ways to agree on a slow network: the mean step of each, predicted before it is measured.

Four paced nodes (emulated devices, real communication) with links of 100 Mbit/s, probed first; the
model is timed on them. What is predicted is written to a file before the runs begin. All modes take
turns, round by round. The mean is over whole rounds of a mode, since not every step exchanges; the
first round, in which nothing has arrived yet, is left out.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.planner.testbed.__main__ import PACED, paceline
from paceline.plan.calibration.calibrate import Steps
from paceline.plan.calibration.priors import unfitted
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.report import RunReader
from paceline.specs import Cluster, Layout, Plan, Run, SyncSettings, TrainingProfile
from paceline.sync.modes.allreduce import AllReduce
from paceline.testbed import client

NAME = "sync-box"
NODES = 4
WITHIN_MEDIAN = 0.10
MODES = (
    "allreduce",
    "allreduce:compress=int8",
    "allreduce:compress=topk",
    "local:every=4",
    "local:every=8,overlap=2",
    "diloco:every=8,compress=int8",
    "sparseloco:every=8",
    "gossip",
    "gossip:graph=ring,overlap=1",
    "easgd",
    "stale:staleness=1",
    "stale:staleness=1,servers=4",
)


@dataclass(frozen=True)
class Row:
    """A mode with what was said and what came of it."""

    sync: str
    predicted_seconds: float
    low_seconds: float
    high_seconds: float
    plain_seconds: float
    """The null: a step is what it is with plain all-reduce."""
    measured_seconds: float = 0.0

    @property
    def off(self) -> float:
        """Of the measured time, by which the prediction is too long."""
        return self.predicted_seconds / self.measured_seconds - 1


class Predictor:
    """A probed cluster, and a model that was timed on its devices."""

    def __init__(self, cluster: Path, profile: Path) -> None:
        self._cluster = Cluster.read(cluster)
        self._training = TrainingProfile.read(profile)
        self._found = unfitted(self._cluster)

    def predict(self, words: str) -> Row:
        """What the planner says of replicas that agree in a way."""
        seconds, low, high = self._found.predict(self._steps(SyncSettings.parse(words)))
        plain, _, _ = self._found.predict(self._steps(AllReduce()))
        return Row(words, float(seconds[0]), float(low[0]), float(high[0]), float(plain[0]))

    def _steps(self, sync: SyncSettings) -> Steps:
        layout = Layout(replicas=NODES)
        profile, batch = self._training.precisions[layout.precision], self._training.batch
        return Steps(
            profile=profile,
            cluster=self._cluster,
            precision=layout.precision,
            engine=PACELINE.engine(profile, self._cluster, layout.precision, sync),
            layouts=Layouts.of([layout], batch),
            batch=np.array([float(batch)]),
        )


@contextmanager
def testbed(link: str, folder: Path) -> Iterator[None]:
    """A testbed with that link, taken down afterwards."""
    up = ("testbed", "up", "--name", NAME, "--nodes", str(NODES), "--link", link)
    paceline(*up, folder=folder)
    try:
        yield
    finally:
        client.down(NAME)


def mean_step_seconds(words: str, train: str, folder: Path) -> float:
    """Run a mode; the mean over its whole rounds."""
    sync = SyncSettings.parse(words)
    plan = folder / "plan.toml"
    Plan(layout=Layout(replicas=NODES), sync=sync).write(plan)
    where = ("--testbed", NAME, "--nodes", str(NODES), "--devices", "1", "--wait")
    with tempfile.TemporaryDirectory(dir=folder, prefix="runs-") as runs:
        paceline("submit", train, *where, "--plan", str(plan), "--runs", runs, folder=folder)
        (run,) = Path(runs).iterdir()
        seconds = RunReader(Run.open(run)).refresh().seconds
    every: int = getattr(sync, "every", 1)
    rounds = (len(seconds) - max(every, 2)) // every
    return statistics.fmean(seconds[-rounds * every :])


def measured(rows: Sequence[Row], train: str, repeats: int, folder: Path) -> list[Row]:
    """Every mode in turn, as often as asked for; medians of the means."""
    found: dict[str, list[float]] = {row.sync: [] for row in rows}
    turns = [row.sync for _ in range(repeats) for row in rows]
    for words in track(turns, description="running", console=Console(stderr=True)):
        found[words].append(mean_step_seconds(words, train, folder))
    return [
        Row(**{**asdict(row), "measured_seconds": statistics.median(found[row.sync])})
        for row in rows
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that are aimed at."""
    errors = [abs(row.off) for row in rows]
    plain = [abs(row.plain_seconds / row.measured_seconds - 1) for row in rows]
    inside = [row.low_seconds <= row.measured_seconds <= row.high_seconds for row in rows]
    return {
        "modes": len(rows),
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "null_median_error": statistics.median(plain),
        "within_interval": statistics.mean(inside),
    }


def show(rows: Sequence[Row], figures: dict[str, Any]) -> None:
    """A table of all, and the figures."""
    table = Table("sync", "predicted", "9 of 10 within", "measured, mean", "error")
    for row in rows:
        table.add_row(
            row.sync,
            f"{1e3 * row.predicted_seconds:.0f} ms",
            f"{1e3 * row.low_seconds:.0f} to {1e3 * row.high_seconds:.0f} ms",
            f"{1e3 * row.measured_seconds:.0f} ms",
            f"{100 * row.off:+.1f} %",
        )
    console = Console(width=110)
    console.print(table)
    for name, value in figures.items():
        console.print(f"{name:24} {value:.3g}")


def main() -> None:
    """Probe, predict, run, compare."""
    parser = argument_parser(__doc__)
    parser.add_argument("--link", default="100mbit")
    parser.add_argument("--model", default="heavy", choices=("deep", "heavy"))
    parser.add_argument("--modes", default=" ".join(MODES), help="separated by spaces")
    parser.add_argument("--steps", type=int, default=40, help="of a run: several rounds of a mode")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where the probe and the predictions are kept")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    os.environ["TESTBED_STEPS"] = str(given.steps)
    train = f"{PACED}:{given.model}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.out or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with testbed(given.link, folder):
            cluster, profile = folder / "cluster.toml", folder / "profile.toml"
            files = ("-o", str(cluster), "--profile", str(profile))
            there = ("--testbed", NAME, "--nodes", str(NODES))
            paceline("probe", train, *there, *files, folder=folder)
            predictor = Predictor(cluster, profile)
            rows = [predictor.predict(words) for words in given.modes.split()]
            with (folder / "predictions.jsonl").open("a") as log:
                for row in rows:
                    log.write(json.dumps({"time": time.time(), **asdict(row)}) + "\n")
            rows = measured(rows, train, given.repeat, folder)
    figures = summary(rows)
    if given.json:
        print(json.dumps({**figures, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        show(rows, figures)
    sys.exit(0 if figures["median_error"] <= WITHIN_MEDIAN else 1)


if __name__ == "__main__":
    main()
