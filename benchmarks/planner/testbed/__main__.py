"""Configurations that are really run on a testbed, each predicted before it is measured.

Nodes are paced (emulated devices, real communication over shaped links). Those that will be used
are probed first, and the model is timed on them: nodes of a testbed share cores, so that sixteen
are slower than four. The last configurations are real CPU workers on
this machine. What is predicted is written to a file before the runs begin.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import processes
from benchmarks.common.output import argument_parser
from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.calibration.priors import unfitted
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.reasons import words
from paceline.plan.search.layout_estimate import estimates
from paceline.specs import Cluster, Layout, Plan, TrainingProfile
from paceline.testbed import client

HERE = Path(__file__).parent
PACED = HERE / "train.py"
REAL = HERE.parents[2] / "examples" / "gpt" / "train.py"
NODES = 16
NAME = "planner-box"
WITHIN_MEDIAN, WITHIN_WORST, WITHIN_CHOICE = 0.05, 0.20, 0.03


@dataclass(frozen=True)
class Case:
    """One configuration."""

    link: str
    """Of every node, or `here` for real workers on this machine."""
    model: str
    """A function of the job's file."""
    nodes: int
    layout: Layout

    @property
    def group(self) -> str:
        """Layouts among which a planner would choose."""
        return f"{self.model}, {self.nodes} nodes, {self.link}"


@dataclass(frozen=True)
class Row:
    """A case with what was said and what came of it."""

    case: Case
    predicted_seconds: float
    low_seconds: float
    high_seconds: float
    ideal_seconds: float
    """The null: one device's step, divided by the devices."""
    measured_seconds: float = 0.0

    @property
    def error(self) -> float:
        """Of the measured time, either way."""
        return abs(self.predicted_seconds / self.measured_seconds - 1)

    @property
    def null_error(self) -> float:
        """The same of ideal scaling."""
        return abs(self.ideal_seconds / self.measured_seconds - 1)


def cases(links: Sequence[str]) -> list[Case]:
    """Fixed before anything was measured: every link, both models, all kinds of layouts."""
    four = [
        Layout(replicas=4),
        Layout(shards=4),
        Layout(pipeline=4, micro_batch=1),
        Layout(replicas=2, pipeline=2, micro_batch=1),
    ]
    found = [
        Case(link, model, 4, layout)
        for link in links
        for model in ("deep", "heavy")
        for layout in four
    ]
    some = {
        "100mbit": [
            Case("100mbit", "deep", 8, Layout(replicas=8)),
            Case("100mbit", "deep", 8, Layout(replicas=4, pipeline=2, micro_batch=1)),
        ],
        "1gbit": [
            Case("1gbit", "deep", 1, Layout()),
            Case("1gbit", "heavy", 1, Layout(micro_batch=4)),
            Case("1gbit", "deep", 2, Layout(replicas=2)),
            Case("1gbit", "deep", 2, Layout(pipeline=2, micro_batch=2)),
            Case("1gbit", "deep", 16, Layout(replicas=16)),
            Case("1gbit", "heavy", 16, Layout(replicas=16)),
            Case("1gbit", "heavy", 16, Layout(replicas=8, shards=2)),
        ],
        "10gbit": [
            Case("10gbit", "heavy", 8, Layout(replicas=8)),
            Case("10gbit", "heavy", 8, Layout(replicas=2, pipeline=4, micro_batch=1)),
        ],
    }
    for link in links:
        found += some.get(link, [])
    return found


def real_cases() -> list[Case]:
    """The GPT example on one and two workers of this machine."""
    layouts = [
        Layout(),
        Layout(micro_batch=8),
        Layout(replicas=2),
        Layout(shards=2),
        Layout(pipeline=2, micro_batch=8),
    ]
    return [Case("here", "training", 1, layout) for layout in layouts]


class Predictor:
    """A probed cluster, and a model that was timed on its devices."""

    def __init__(self, cluster: Path, profile: Path) -> None:
        self._cluster = Cluster.read(cluster)
        self._training = TrainingProfile.read(profile)
        self._found: Fit = unfitted(self._cluster)

    def predict(self, case: Case) -> Row:
        """What the planner says of a case."""
        batch, layout = self._training.batch, case.layout
        profile = self._training.precisions[layout.precision]
        cluster = self._cluster.model_copy(
            update={"nodes": case.nodes, "devices_per_node": layout.workers // case.nodes}
        )
        steps = Steps(
            profile=profile,
            cluster=cluster,
            precision=layout.precision,
            engine=PACELINE.engine(profile, cluster, layout.precision),
            layouts=Layouts.of([layout], batch),
            batch=np.array([float(batch)]),
        )
        (estimate,) = estimates(self._found, steps, layout.precision)
        alone = replace(steps, layouts=Layouts.of([Layout()], batch))
        said = estimate.step_seconds
        return Row(
            case=case,
            predicted_seconds=said.value,
            low_seconds=said.low,
            high_seconds=said.high,
            ideal_seconds=float(alone.predicted(self._found.numbers)[0]) / layout.workers,
        )


def paceline(*args: str, folder: Path) -> Any:
    """Run a `paceline` command in a folder and return what it prints as JSON."""
    return json.loads(processes.paceline(*args, "--json", folder=folder))


@contextmanager
def testbed(link: str, folder: Path) -> Iterator[None]:
    """A testbed with that link, taken down afterwards."""
    paceline(
        *("testbed", "up", "--name", NAME, "--nodes", str(NODES), "--link", link), folder=folder
    )
    try:
        yield
    finally:
        client.down(NAME)


def probed(train: str, where: Sequence[str], folder: Path, name: str) -> Predictor:
    """Probe a cluster and time a model on it."""
    cluster, profile = folder / f"{name}.toml", folder / f"{name}-profile.toml"
    files = ("-o", str(cluster), "--profile", str(profile))
    paceline("probe", train, *where, *files, folder=folder)
    return Predictor(cluster, profile)


def run(case: Case, folder: Path) -> float:
    """Run a case; the median of its steps."""
    plan = folder / "plan.toml"
    Plan(layout=case.layout).write(plan)
    if case.link == "here":
        words = ["run", f"{REAL}:{case.model}", "-n", str(case.layout.workers)]
    else:
        words = ["submit", f"{PACED}:{case.model}", "--testbed", NAME, "--wait"]
        words += ["--nodes", str(case.nodes), "--devices", str(case.layout.workers // case.nodes)]
    found = paceline(*words, "--plan", str(plan), folder=folder)
    return float(found["median_step_seconds"])


def measured_rows(
    predictor: Predictor, chosen: Sequence[Case], folder: Path, log: Path
) -> Iterator[Row]:
    """Predict all, write that down, then run one after the other."""
    said = [predictor.predict(case) for case in chosen]
    with log.open("a") as file:
        for row in said:
            file.write(json.dumps({"time": time.time(), **asdict(row)}, default=_plain) + "\n")
    for row in track(said, description=chosen[0].link, console=Console(stderr=True)):
        yield replace(row, measured_seconds=run(row.case, folder))


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The figures that are aimed at."""
    errors = [row.error for row in rows]
    regrets = []
    for group in {row.case.group for row in rows}:
        among = [row for row in rows if row.case.group == group]
        if len(among) > 1:
            choice = min(among, key=lambda row: row.predicted_seconds)
            regrets.append(choice.measured_seconds / min(row.measured_seconds for row in among) - 1)
    return {
        "configurations": len(rows),
        "median_error": statistics.median(errors),
        "worst_error": max(errors),
        "null_median_error": statistics.median(row.null_error for row in rows),
        "null_worst_error": max(row.null_error for row in rows),
        "within_interval": statistics.mean(
            row.low_seconds <= row.measured_seconds <= row.high_seconds for row in rows
        ),
        "groups": len(regrets),
        "choice_mean_slower": statistics.mean(regrets),
        "choice_worst_slower": max(regrets),
    }


def show(rows: Sequence[Row], figures: dict[str, float]) -> None:
    """A table of all, and the figures."""
    table = Table("model", "link", "nodes", "layout", "predicted", "measured", "error", "ideal")
    for row in rows:
        table.add_row(
            row.case.model,
            row.case.link,
            str(row.case.nodes),
            words(row.case.layout),
            f"{1e3 * row.predicted_seconds:.0f} ms",
            f"{1e3 * row.measured_seconds:.0f} ms",
            f"{100 * (row.predicted_seconds / row.measured_seconds - 1):+.1f} %",
            f"{100 * (row.ideal_seconds / row.measured_seconds - 1):+.1f} %",
        )
    console = Console(width=130)
    console.print(table)
    for name, value in figures.items():
        console.print(f"{name:24} {value:.3g}")


def main() -> None:
    """Probe, predict, run, compare."""
    parser = argument_parser(__doc__)
    parser.add_argument("--links", default="100mbit,1gbit,10gbit")
    parser.add_argument("--out", type=Path, help="where probes, predictions and runs are kept")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.out or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "predictions.jsonl"
        rows: list[Row] = []
        links = given.links.split(",")
        for link in links:
            with testbed(link, folder):
                groups = {(each.model, each.nodes) for each in cases(links) if each.link == link}
                for model, nodes in sorted(groups):
                    there = ("--testbed", NAME, "--nodes", str(nodes))
                    name = f"{link}-{model}-{nodes}"
                    predictor = probed(f"{PACED}:{model}", there, folder, name)
                    chosen = [
                        each
                        for each in cases(links)
                        if (each.link, each.model, each.nodes) == (link, model, nodes)
                    ]
                    rows += measured_rows(predictor, chosen, folder, log)
        for workers in (1, 2):
            here = ("-n", str(workers))
            predictor = probed(str(REAL), here, folder, f"here-{workers}")
            chosen = [each for each in real_cases() if each.layout.workers == workers]
            rows += measured_rows(predictor, chosen, folder, log)
    figures = summary(rows)
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        show(rows, figures)
    reached = (
        figures["median_error"] <= WITHIN_MEDIAN
        and figures["worst_error"] <= WITHIN_WORST
        and figures["choice_worst_slower"] <= WITHIN_CHOICE
    )
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
