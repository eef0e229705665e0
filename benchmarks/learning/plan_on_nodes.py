"""Is the batch that the plan chooses the one that reaches a loss first?

A task of `benchmarks.learning`, tuned at a batch of 16, on eight nodes of a testbed: real
processes and Gloo over shaped links, with emulated devices (`paced_train.py`). The nodes are
probed, the model is timed on them, and the critical batch is probed without waiting. Then
`paceline plan --batch best --goal fastest` chooses batch and nodes. Six configurations, fixed
before, and the chosen one, are trained with the rules for their batch.

The time of a run is that of its steps until the training loss, smoothed over 4,096 samples that no
step had seen, is at or below the target: the smoothed loss of batch 16 on one worker after 75 % of
its samples, the mean over three seeds that no run uses (`--pilot`).
"""

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console

from benchmarks.common import processes
from benchmarks.common.output import argument_parser, print_goals, progress, table
from benchmarks.learning import train
from benchmarks.learning.paced_train import SAMPLES
from paceline.report import RunReader
from paceline.specs import CriticalBatch, Run
from paceline.testbed import client

SCRIPT = Path(__file__).with_name("paced_train.py")
NAME, NODES, LINK = "batch-box", 8, "1gbit"
WINDOW_SAMPLES = 4_096
FIRST_SEED, PILOT_SEEDS = 600, (7, 8, 9)
TARGET_LOSS = 2.4671
GOAL = 1.05


@dataclass(frozen=True, order=True)
class Choice:
    """Nodes and batch."""

    nodes: int
    batch: int


SIX = [
    Choice(8, 64),
    Choice(8, 128),
    Choice(8, 256),
    Choice(8, 512),
    Choice(4, 128),
    Choice(4, 256),
]


def paceline(*words: object, folder: Path) -> Any:
    """Run a `paceline` command; return what it prints as JSON."""
    before, dash, after = _parted([str(word) for word in words])
    return json.loads(processes.paceline(*before, "--json", *dash, *after, folder=folder))


def _parted(words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at : at + 1]), list(words[at + 1 :])


@contextmanager
def testbed(folder: Path) -> Iterator[None]:
    """Eight nodes, taken down afterwards."""
    paceline("testbed", "up", "--name", NAME, "--nodes", NODES, "--link", LINK, folder=folder)
    try:
        yield
    finally:
        client.down(NAME)


def seconds_to(loss: float, run: Path) -> float:
    """Return the seconds of steps until a run's smoothed loss is there; infinite if it never is."""
    for seconds, smoothed in curve(run):
        if smoothed <= loss:
            return seconds
    return math.inf


def curve(run: Path) -> list[tuple[float, float]]:
    """Return seconds and smoothed training loss after each step."""
    state = RunReader(Run.open_to_read(run)).refresh()
    steps = list(zip(state.loss, state.samples, state.seconds, strict=True))
    found, seconds = [], 0.0
    for number, (_, _, took) in enumerate(steps):
        seconds += took
        weight = total = 0.0
        for loss, samples, _ in reversed(steps[: number + 1]):
            weight, total = weight + samples, total + samples * loss
            if weight >= WINDOW_SAMPLES:
                break
        if weight >= WINDOW_SAMPLES:
            found.append((seconds, total / weight))
    return found


def trained(choice: Choice, critical: float, seed: int, folder: Path) -> Path:
    """Train a configuration on the testbed; return its run folder."""
    where = ("--testbed", NAME, "--nodes", choice.nodes, "--devices", 1, "--wait")
    runs = folder / f"{choice.nodes}-{choice.batch}-{seed}"
    words = ("--runs", runs, "--", choice.batch, critical, seed)
    paceline("submit", SCRIPT, *where, *words, folder=folder)
    return next(runs.iterdir())


def pilot(folder: Path) -> float:
    """Return the target loss."""
    found = []
    for seed in PILOT_SEEDS:
        runs = folder / f"pilot-{seed}"
        words = ("--runs", runs, "-n", 1, "--", train.TUNED_AT, 0, seed, "unpaced")
        paceline("run", SCRIPT, *words, folder=folder)
        losses = [loss for _, loss in curve(next(runs.iterdir()))]
        found.append(losses[-SAMPLES // train.TUNED_AT // 4])
    return fmean(found)


def planned(folder: Path) -> tuple[Choice, dict[str, Any]]:
    """Probe nodes, model and learning; return what the plan chooses, and all that it says."""
    paceline("probe", SCRIPT, "--testbed", NAME, "--nodes", NODES, "--devices", 1, folder=folder)
    paceline("probe", SCRIPT, "--learning", "--", "unpaced", folder=folder)
    said = paceline("plan", SCRIPT, "--batch", "best", "--goal", "fastest", folder=folder)
    return Choice(said["nodes"], said["batch"]), said


def measured(seeds: int, loss: float, folder: Path) -> dict[str, Any]:
    """Plan, then train all configurations in turn."""
    with testbed(folder):
        chosen, said = planned(folder)
        critical = CriticalBatch.model_validate(said["batches"]["critical"]).at_hand
        configurations = sorted({*SIX, chosen})
        times: dict[Choice, list[float]] = {each: [] for each in configurations}
        for number in progress(range(seeds), "seeds"):
            for each in configurations[:: -1 if number % 2 else 1]:
                run = trained(each, critical, FIRST_SEED + number, folder)
                times[each].append(seconds_to(loss, run))
    predicted = {
        each["batch"]: each["cost"]["seconds"]["value"] for each in said["batches"]["options"]
    }
    return {
        "critical": said["batches"]["critical"],
        "chosen": [chosen.nodes, chosen.batch],
        "predicted_by_batch": predicted,
        "rows": [
            {"nodes": each.nodes, "batch": each.batch, "seconds": times[each]}
            for each in configurations
        ],
    }


def show(found: dict[str, Any]) -> None:
    """Print a row per configuration, and whether the plan's is near the best."""
    shown = table(
        "Seconds to the same loss, emulated devices", "nodes", "batch", "seconds", "of the best"
    )
    best = min(median(row["seconds"]) for row in found["rows"])
    ratio = math.inf
    for row in found["rows"]:
        is_chosen = [row["nodes"], row["batch"]] == found["chosen"]
        here = median(row["seconds"]) / best
        ratio = here if is_chosen else ratio
        each = f"{median(row['seconds']):.1f} [{min(row['seconds']):.1f}–{max(row['seconds']):.1f}]"
        mark = " (the plan's)" if is_chosen else ""
        shown.add_row(str(row["nodes"]), f"{row['batch']}{mark}", each, f"{here:.3f}")
    Console().print(shown)
    print_goals({f"the plan's is at most {GOAL} of the best: {ratio:.3f}": ratio <= GOAL})


def main() -> None:
    """Measure, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pilot", action="store_true", help="print the target loss instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.pilot:
            print(f"{pilot(folder):.4f}")
            return
        found = measured(options.seeds, TARGET_LOSS, folder)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)


if __name__ == "__main__":
    main()
