"""Does a batch 16 times as large learn as well, with the advised settings and with its own?

Three small tasks with SGD and AdamW, tuned at a batch of 16. The arms, each with the same seeds:

- base: batch 16.
- advised: batch 256 with `tuned_at=16` and the critical batch that a probe of a tenth of the base's
  steps measures (`paceline probe --learning`, noise of one worker's micro-batches): rates, betas,
  weight decay, warm-up and samples by the rules.
- naive: batch 256, everything else as it is, as many samples as the base.

Compared is the loss on held-out data after training, by seed: the same within 1 % of the base by
two one-sided tests, or worse, both at 5 % for the two comparisons of a row together. Every arm that
was run is printed.
"""

import argparse
import json
import math
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from benchmarks.common.output import argument_parser, progress, table
from benchmarks.learning import train
from benchmarks.learning.arms import Arm, trained
from paceline.jobs.learning_probe import probe_learning
from paceline.launch.target import Target
from paceline.specs import Comparison, RunQuality
from paceline.study.equivalence_test import Family, comparisons

TASKS, OPTIMIZERS = ("bytes", "attention", "teacher"), ("sgd", "adamw")
TIMES, MARGIN = 16, 0.01
FIRST_SEED, TUNING_SEED = 100, 7
PROBED = 0.1
"""Part of the base's steps that a probe may take."""
MEASURE = "evaluated loss"


def critical_batch(task: str, optimizer: str) -> float:
    """Return the critical batch by a probe; its lower bound where the signal is not resolved."""
    steps = int(PROBED * train.SAMPLES / train.TUNED_AT)
    with tempfile.TemporaryDirectory() as folder:
        target = Target.parse(str(train.__file__), (task, optimizer))
        found = probe_learning(target, steps, runs=Path(folder)).learning
    return found.critical or found.low


def compared(base: Sequence[float], other: Sequence[float]) -> Comparison | None:
    """Compare two arms with the same seeds; None if a run of either failed."""
    if not all(map(math.isfinite, (*base, *other))):
        return None
    found = [
        [
            RunQuality(run=f"{seed}", seed_plus=seed, samples=0, values={MEASURE: value})
            for seed, value in enumerate(values)
        ]
        for values in (other, base)
    ]
    (one,) = comparisons(found[0], found[1], MARGIN, failed=False, among=Family(2))
    return one


def tuned(pool: ProcessPoolExecutor) -> None:
    """Print the loss of rates around those in `train.py`, with a seed that nothing else uses."""
    rows = table("Held-out loss by rate", "task", "optimizer", "rate", "loss", texts=2)
    arms = [
        Arm(task, optimizer, TUNING_SEED, rate_times=times)
        for task, optimizer in product(TASKS, OPTIMIZERS)
        for times in (0.25, 0.5, 1.0, 2.0, 4.0)
    ]
    for arm, found in zip(arms, progress(pool.map(trained, arms), "rates"), strict=False):
        rate = arm.rate_times * train.RATES[arm.task, arm.optimizer]
        rows.add_row(arm.task, arm.optimizer, f"{rate:g}", f"{found:.4f}")
    Console().print(rows)


def measured(pool: ProcessPoolExecutor, seeds: int) -> list[dict[str, Any]]:
    """Run all arms; return a row for each task and optimizer."""
    rows: list[dict[str, Any]] = []
    cases = list(product(TASKS, OPTIMIZERS))
    for task, optimizer in progress(cases, "tasks"):
        critical = critical_batch(task, optimizer)
        ways = {
            "base": Arm(task, optimizer, 0),
            "advised": Arm(task, optimizer, 0, TIMES, critical_batch=critical),
            "naive": Arm(task, optimizer, 0, TIMES),
        }
        arms = {
            name: [replace(arm, seed=FIRST_SEED + number) for number in range(seeds)]
            for name, arm in ways.items()
        }
        losses = {name: list(pool.map(trained, each)) for name, each in arms.items()}
        rows.append(
            {"task": task, "optimizer": optimizer, "critical_batch": critical, "losses": losses}
        )
    return rows


def shown(rows: Sequence[dict[str, Any]]) -> None:
    """Print the comparisons as a table."""
    columns = ("task", "optimizer", "critical batch", "base", "advised", "", "naive", "")
    made = table(f"Batch x {TIMES}: held-out loss against the base", *columns, texts=2)
    for row in rows:
        losses, cells = row["losses"], []
        for name in ("advised", "naive"):
            one = compared(losses["base"], losses[name])
            cells += ["–", "failed"] if one is None else [_difference(one), one.verdict]
        base = f"{fmean(losses['base']):.4f}"
        made.add_row(row["task"], row["optimizer"], f"{row['critical_batch']:,.0f}", base, *cells)
    Console().print(made)


def _difference(one: Comparison) -> str:
    share = 100 / one.base.value
    half = (one.difference.half or 0.0) * share
    return f"{one.difference.value * share:+.2f} ± {half:.2f} %"


def main() -> None:
    """Run all arms and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=2, help="processes at the same time")
    parser.add_argument("--tune", action="store_true", help="print the loss by rate instead")
    parser.add_argument("--json", type=argparse.FileType("w"), help="write all losses to this file")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.at_once, multiprocessing.get_context("forkserver")) as pool:
        if options.tune:
            tuned(pool)
            return
        rows = measured(pool, options.seeds)
    shown(rows)
    if options.json:
        json.dump(rows, options.json, indent=1)


if __name__ == "__main__":
    main()
