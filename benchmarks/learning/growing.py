"""How much sooner does a batch that grows reach a loss?

Tasks of `benchmarks.learning`, tuned at a batch of 16, on two real workers (processes, Gloo over
loopback). Each worker's device is emulated: in addition to its computation, a step waits for a
fixed time and for a time per sample of its local batch. The arms, with the same seeds:

- constant: batch 16.
- null: the same, with another seed.
- staged: 16, then 32, 64 and 128 at fixed samples.
- grown: `paceline.grow(16, to=128)`.
- large: batch 128 from the beginning.

All but the first two have `tuned_at=16` and the critical batch that the probes of
`benchmarks.learning` found: rates, betas, decay, schedule and samples by the rules.

Held-out loss is evaluated after every 512 samples, which the clock leaves out, and smoothed over
three evaluations. The time of an arm is that of its first smoothed loss at or below the target,
interpolated between two evaluations. Targets were fixed before: the smoothed loss of the constant
arm after 90 % of its samples, with a seed that no arm uses (`--pilot`). Shown are ratios of times
by seed, median and range; an arm that misses the target has no time, and is counted as a miss.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from statistics import median
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import Subset

import paceline
from benchmarks.common.output import argument_parser, print_goals, progress, table
from benchmarks.common.workers import on_workers
from benchmarks.learning import train
from paceline.testbed.paced import PacedCost, paced_model
from paceline.user.growing_batch import Batch

WORKERS, SAMPLES, EVALUATE_EVERY, SMOOTHED = 2, 16_384, 512, 3
STAGES = {0: 16, 2_048: 32, 4_096: 64, 8_192: 128}
LARGE = max(STAGES.values())
ARMS = ("constant", "null", "staged", "grown", "large")
FIRST_SEED, PILOT_SEED, NULL_OFFSET = 400, 7, 1_000
CRITICAL = {"bytes adamw": 220.0, "teacher sgd": 469.0}
"""By the probes of `benchmarks.learning` (docs/larger-batch.md)."""
TARGETS = {"bytes adamw": 2.2953, "teacher sgd": 1.0027}
GOAL = 0.8
NOISE_EVERY = 5
"""In all arms; so the batch may double after 100 steps."""


@dataclass(frozen=True)
class Pace:
    """The emulated device: times of a step, of which a third is forward."""

    step_seconds: float
    sample_seconds: float


PACES = {
    "balanced": Pace(step_seconds=0.010, sample_seconds=0.001),
    "compute-bound": Pace(step_seconds=0.002, sample_seconds=0.002),
}
CASES = (
    ("bytes adamw", "balanced"),
    ("teacher sgd", "balanced"),
    ("bytes adamw", "compute-bound"),
)


class Paced(nn.Module):
    """A model on an emulated device; evaluation does not wait."""

    def __init__(self, model: nn.Module, pace: Pace) -> None:
        super().__init__()
        self.model = model
        times = (pace.step_seconds, False), (pace.sample_seconds, True)
        self.device_time = paced_model(
            [PacedCost(each / 3, 2 * each / 3, 0, for_each_sample=per) for each, per in times]
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the model's output, later."""
        output: Tensor = self.model(inputs)
        return self.device_time(output) if torch.is_grad_enabled() else output


@dataclass(frozen=True)
class Arm:
    """One run."""

    case: str
    pace: Pace
    name: str
    seed: int


def training_of(arm: Arm) -> paceline.Training:
    """Return the training of an arm."""
    task, optimizer = arm.case.split()
    steps = SAMPLES // train.TUNED_AT
    base = replace(
        train.training(task, optimizer),
        model=lambda: Paced(train.model(task), arm.pace),
        schedule=train.cosine(steps),
        steps=steps,
        noise_every=NOISE_EVERY,
        seed=arm.seed + NULL_OFFSET * (arm.name == "null"),
    )
    batches: dict[str, Batch] = {
        "staged": STAGES,
        "grown": paceline.grow(train.TUNED_AT, to=LARGE),
        "large": LARGE,
    }
    if arm.name not in batches:
        return base
    return replace(
        base, batch=batches[arm.name], tuned_at=train.TUNED_AT, critical_batch=CRITICAL[arm.case]
    )


def curve(arm: Arm, run_path: str) -> list[tuple[float, int, float]]:
    """Train on this worker; return seconds, samples and held-out loss of every evaluation."""
    del run_path
    torch.set_num_threads(1)
    training = training_of(arm)
    held_out = Subset(train.data(arm.case.split()[0], held_out=True), range(2_048))
    found: list[tuple[float, int, float]] = []
    seconds, samples = 0.0, 0
    with paceline.start(training) as trainer:
        begun = time.perf_counter()
        for batch in trainer:
            trainer.step(batch)
            before, samples = samples, samples + batch.global_samples
            if samples // EVALUATE_EVERY > before // EVALUATE_EVERY:
                seconds += time.perf_counter() - begun
                found.append((seconds, samples, trainer.evaluate(held_out).loss))
                begun = time.perf_counter()
    return found


def smoothed(points: Sequence[tuple[float, int, float]]) -> list[tuple[float, float]]:
    """Return seconds and the mean loss of the last evaluations."""
    return [
        (points[end - 1][0], sum(loss for *_, loss in points[end - SMOOTHED : end]) / SMOOTHED)
        for end in range(SMOOTHED, len(points) + 1)
    ]


def seconds_to(target: float, points: Sequence[tuple[float, int, float]]) -> float:
    """Return when the smoothed loss reaches the target; infinite if it does not."""
    for (begin, above), (end, below) in pairwise(smoothed(points)):
        if below <= target:
            return begin + (end - begin) * (above - target) / (above - below)
    return math.inf


def measured(seeds: int) -> Iterator[dict[str, Any]]:
    """Run all arms, interleaved; yield a row for each run."""
    for (case, pace), number in progress(list(product(CASES, range(seeds))), "seeds"):
        for name in ARMS if number % 2 == 0 else ARMS[::-1]:
            arm = Arm(case, PACES[pace], name, FIRST_SEED + number)
            points = on_workers(curve, WORKERS, arm)[0]
            yield {**asdict(arm), "pace_name": pace, "points": points}


def times(rows: Sequence[dict[str, Any]], case: str, pace: str, name: str) -> list[float]:
    """Return the seconds to the target of each seed."""
    chosen = [
        row for row in rows if (row["case"], row["pace_name"], row["name"]) == (case, pace, name)
    ]
    return [seconds_to(TARGETS[case], row["points"]) for row in chosen]


def shown(rows: Sequence[dict[str, Any]]) -> None:
    """Print the ratios, and whether the goal is met."""
    columns = ("task", "device", "arm", "seconds", "against constant", "missed")
    made = table("Time to the same held-out loss, two workers, emulated devices", *columns, texts=3)
    goals: dict[str, bool] = {}
    for case, pace in CASES:
        constant = times(rows, case, pace, "constant")
        for name in ARMS:
            own = times(rows, case, pace, name)
            pairs = zip(own, constant, strict=True)
            ratios = [one / other for one, other in pairs if math.isfinite(other)]
            middle = median(ratios) if ratios else math.inf
            words = f"{middle:.2f} [{min(ratios):.2f}–{max(ratios):.2f}]" if ratios else "–"
            missed = sum(map(math.isinf, own))
            made.add_row(case, pace, name, f"{median(own):.1f}", words, str(missed))
            if name in ("staged", "grown"):
                goals[f"{case}, {pace}: {name} <= {GOAL} of the time"] = middle <= GOAL
    Console().print(made)
    print_goals(goals)


def main() -> None:
    """Run all arms and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pilot", action="store_true", help="print targets instead")
    parser.add_argument(
        "--json", type=argparse.FileType("w"), help="write curves to this file, a line per run"
    )
    options = parser.parse_args()
    if options.pilot:
        for case in CRITICAL:
            points = on_workers(curve, WORKERS, Arm(case, Pace(0.0, 0.0), "constant", PILOT_SEED))[
                0
            ]
            losses = smoothed(points)
            print(f"{case}: {losses[round(0.9 * len(points)) - SMOOTHED][1]:.4f}")
        return
    rows = []
    for row in measured(options.seeds):
        rows.append(row)
        if options.json:
            print(json.dumps(row), file=options.json, flush=True)
    shown(rows)


if __name__ == "__main__":
    main()
