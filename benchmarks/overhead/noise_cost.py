"""Microseconds that the gradient noise adds to a step of small models.

Two workers train in blocks of steps that alternate: with the noise measured every ten steps, at
the interval that it adapts to, without, and without again (the null). One trainer takes all steps,
so that nothing else differs. Blocks have whole numbers of intervals.

CPU: time of the thread that trains, which leaves out waiting; wall time stands beside it.
"""

import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from benchmarks.common.output import argument_parser, table
from benchmarks.common.rounds import Rounds, blocks_by_clock
from benchmarks.common.workers import on_workers

SAMPLES, CLASSES = 20_000, 4
UNTIL_ADAPTED = 130
CLOCKS = {"CPU": time.thread_time, "wall": time.perf_counter}


def perceptron(features: int, width: int, layers: int) -> nn.Module:
    """Build a perceptron."""
    sizes = [features, *[width] * layers]
    inside = [each for pair in pairwise(sizes) for each in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*inside, nn.Linear(width, CLASSES))


CASES: dict[str, tuple[int, int, int, int, Callable[..., Any]]] = {
    "tiny/SGD": (16, 32, 1, 32, torch.optim.SGD),
    "tiny/AdamW": (16, 32, 1, 32, torch.optim.AdamW),
    "20-layers/SGD": (16, 64, 20, 128, torch.optim.SGD),
    "20-layers/AdamW": (16, 64, 20, 128, torch.optim.AdamW),
    "265k/AdamW": (64, 350, 3, 64, torch.optim.AdamW),
}
"""Features, width, layers, batch, optimizer."""


def measure(case: str, rounds: int, steps: int, run_path: str) -> tuple[int, dict[str, Rounds]]:
    """Return the interval, and the seconds per step with and without noise, by clock."""
    del run_path
    features, width, layers, batch, optimizer = CASES[case]
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, features, generator=generator)
    training = paceline.Training(
        model=lambda: perceptron(features, width, layers),
        loss=F.cross_entropy,
        data=TensorDataset(inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)),
        optimizer=lambda parameters: optimizer(parameters, lr=1e-3),
        batch=batch,
        steps=1_000_000,
    )
    with paceline.start(training) as trainer:
        batches, interval = iter(trainer), trainer._stepper._noise.interval
        for _ in range(UNTIL_ADAPTED):
            trainer.step(next(batches))
        adapted = interval.steps

        def way(every: int) -> Callable[[], object]:
            def step() -> object:
                interval.steps = every
                return trainer.step(next(batches))

            return step

        ways = {"every 10": way(10), "adapted": way(adapted), "none": way(0), "none again": way(0)}
        length = -(-steps // adapted) * adapted
        return adapted, blocks_by_clock(ways, rounds, length, CLOCKS)


def main() -> None:
    """Measure all cases and print the differences."""
    words = argument_parser(__doc__)
    words.add_argument("--rounds", type=int, default=40, help="blocks (default: %(default)s)")
    words.add_argument("--steps", type=int, default=100, help="per block (default: %(default)s)")
    words.add_argument("--cases", default=",".join(CASES), help="(default: %(default)s)")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[str, float]] = {}
    for case in options.cases.split(","):
        adapted, found = on_workers(measure, 2, case, options.rounds, options.steps)[0]
        figures[case] = {"interval": adapted}
        for clock, rounds in found.items():
            figures[case][f"{clock}: step"] = 1e6 * rounds.median("none")
            for way in ("every 10", "adapted", "none again"):
                figures[case][f"{clock}: {way}"] = _added(rounds, way)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    shown = table("Microseconds per step, medians of alternating blocks; measured", "model")
    for column in next(iter(figures.values())):
        shown.add_column(column, justify="right")
    for case, row in figures.items():
        shown.add_row(case, *(f"{value:.0f}" for value in row.values()))
    Console().print(shown)


def _added(found: Rounds, way: str) -> float:
    """Return the median over the rounds of a way's microseconds less those without."""
    return 1e6 * statistics.median(each[way] - each["none"] for each in found.values)


if __name__ == "__main__":
    main()
