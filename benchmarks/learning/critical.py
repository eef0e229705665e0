"""Does a probe of a tenth of a run tell the critical batch that branches measure?

The protocol, fixed before any of it was run:

- Measured: each task and optimizer trains with 1, 2, 4, 8 and 16 times the batch of 16 until its
  held-out loss is at a target, which the batch of 16 with its tuned rate has after 32,768 samples
  (`attention`, which is slow: 16,384). Betas and weight decay follow the rules without a known
  critical batch; so do rates, constant after a warm-up of 1,311 samples. Each batch tries three
  rates, and counts the fewest samples: half, once and twice the ruled rate with AdamW; a quarter,
  half and once with SGD, whose linear rule overshoots. Loss: over 2,048 held-out samples
  (`attention`: 512), every 1,024 samples, mean of five evaluations, interpolated at the target. A
  batch that needs more than 65,536 samples is left out. Weights and order of the data depend on the
  seed alone. The critical batch C has the least relative squared error of samples = E (1 + batch /
  C), and is the geometric mean over the seeds.
- Predicted: `paceline probe --learning` for a tenth of the samples to the target, with the batch of
  16; its lower bound where the signal is not resolved. With AdamW, coordinates are weighted.
- Beside it: the plain noise scale of the same probe, and the training's own batch.

A prediction holds if it is within 1.5 times the measured one, either way.
"""

import json
import math
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from benchmarks.common.output import argument_parser, progress, table
from benchmarks.learning import train
from paceline.jobs.learning_probe import probe_learning
from paceline.launch.target import Target
from paceline.learning.rules import batch_rule
from paceline.report import RunReader
from paceline.report.run.learning import learning_of
from paceline.specs import Learning
from paceline.train.gradients.optimizer_family import family_of
from paceline.train.state.tuned_batch import apply_rule

TASKS, OPTIMIZERS = ("teacher", "bytes", "attention"), ("sgd", "adamw")
TIMES = (1, 2, 4, 8, 16)
RATE_TIMES = {"sgd": (0.5, 0.25, 1.0), "adamw": (1.0, 0.5, 2.0)}
AFTER = {"teacher": 32_768, "bytes": 32_768, "attention": 16_384}
EVALUATED = {"teacher": 2_048, "bytes": 2_048, "attention": 512}
MOST = train.SAMPLES
PROBED = 0.1
EVERY, SMOOTHED = 1_024, 5
FIRST_SEED = 200
WITHIN = 1.5
HEAD = ("task", "optimizer")

Curve = list[tuple[float, float]]
"""Samples, and the smoothed held-out loss around them."""


@dataclass(frozen=True)
class Branch:
    """Runs of one batch."""

    task: str
    optimizer: str
    seed: int
    times: int = 1
    target: float = -math.inf


def target_of(base: Branch) -> float:
    """Return the loss of the tuned rate after the samples that define the target."""
    return trained(base, 1.0, AFTER[base.task] + (SMOOTHED - 1) * EVERY // 2)[-1][1]


def branched(branch: Branch) -> dict[float, float]:
    """Return the samples to the target with each rate; infinite where it took more than another."""
    found: dict[float, float] = {}
    for rate_times in RATE_TIMES[branch.optimizer]:
        best = min(found.values(), default=math.inf)
        most = min(MOST, best + SMOOTHED * EVERY)
        found[rate_times] = samples_to(branch.target, trained(branch, rate_times, most))
    return found


def trained(branch: Branch, rate_times: float, most: float) -> Curve:
    """Train to the target, or for the most samples; return the curve until then."""
    torch.set_num_threads(1)
    batch, task = branch.times * train.TUNED_AT, branch.task
    torch.manual_seed(branch.seed)
    model = train.model(task)
    optimizer = train.optimizer(branch.optimizer, train.RATES[task, branch.optimizer])(
        model.parameters()
    )
    family = family_of(optimizer)
    assert family is not None
    apply_rule(batch_rule(family, batch, train.TUNED_AT), optimizer)
    rate = rate_times * optimizer.param_groups[0]["lr"]
    inputs, targets = train.data(task, held_out=False).tensors
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(branch.seed))
    held_out = [each[: EVALUATED[task]] for each in train.data(task, held_out=True).tensors]
    losses: list[float] = []
    curve: Curve = []
    for samples in range(batch, int(most) + 1, batch):
        here = order[samples - batch : samples]
        begun = min(1.0, samples / (train.WARM_UP * train.SAMPLES))
        optimizer.param_groups[0]["lr"] = begun * rate
        optimizer.zero_grad()
        torch.autograd.backward(train.loss(model(inputs[here]), targets[here]))
        optimizer.step()
        if samples % EVERY:
            continue
        losses.append(_evaluated(model, *held_out))
        if not math.isfinite(losses[-1]):
            break
        if len(losses) >= SMOOTHED:
            middle = samples - (SMOOTHED - 1) * EVERY / 2
            curve.append((middle, math.fsum(losses[-SMOOTHED:]) / SMOOTHED))
            if curve[-1][1] <= branch.target:
                break
    return curve


@torch.no_grad()
def _evaluated(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(train.loss(model(inputs), targets))


def samples_to(target: float, curve: Curve) -> float:
    """Return the samples at which a curve that ends at the target reaches it; infinite if not."""
    if not curve or curve[-1][1] > target:
        return math.inf
    if len(curve) == 1:
        return curve[0][0]
    (before, above), (samples, below) = curve[-2:]
    return samples - (samples - before) * (target - below) / (above - below)


def fitted(samples: dict[int, float]) -> float | None:
    """Return the critical batch from samples by batch; None where they do not grow."""
    reached = {batch: each for batch, each in samples.items() if math.isfinite(each)}
    if len(reached) < 3:
        return None
    weights = [1 / each for each in reached.values()]
    slope, start = np.polyfit(list(reached), list(reached.values()), 1, w=weights)
    return float(start / slope) if slope > 0 and start > 0 else None


def probed(task: str, optimizer: str) -> dict[str, float]:
    """Return the critical batch of a probe, and the one of its plain noise scale."""
    with tempfile.TemporaryDirectory() as folder:
        target = Target.parse(str(train.__file__), (task, optimizer))
        steps = int(PROBED * AFTER[task] / train.TUNED_AT)
        found = probe_learning(target, steps, runs=Path(folder))
        plain = learning_of(found.run, RunReader(found.run).refresh(), weighted=False)
    assert plain is not None
    return {
        "probe": _suggested(found.learning),
        "plain": _suggested(plain),
        "constant": train.TUNED_AT,
    }


def _suggested(learning: Learning) -> float:
    return learning.critical or learning.low


def measured(pool: ProcessPoolExecutor, seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Run all branches and probes; yield a row for each task and optimizer."""
    cases = list(product(TASKS, OPTIMIZERS))
    bases = [Branch(*case, seed) for case, seed in product(cases, seeds)]
    aims = [
        replace(base, target=target)
        for base, target in zip(bases, pool.map(target_of, bases), strict=True)
    ]
    branches = [replace(aim, times=times) for aim in aims for times in TIMES]
    running = {branch: pool.submit(branched, branch) for branch in branches}
    suggested = {case: probed(*case) for case in cases}
    for task, optimizer in progress(cases, "tasks"):
        mine = [each for each in branches if (each.task, each.optimizer) == (task, optimizer)]
        found = {branch: running[branch].result() for branch in mine}
        yield row_of(task, optimizer, found) | suggested[task, optimizer]


def row_of(task: str, optimizer: str, found: dict[Branch, dict[float, float]]) -> dict[str, Any]:
    """Return the critical batch of a task's branches, by seed and over all, with all samples."""
    criticals = []
    for seed in sorted({branch.seed for branch in found}):
        mine = {branch: each for branch, each in found.items() if branch.seed == seed}
        criticals.append(
            fitted({each.times * train.TUNED_AT: min(mine[each].values()) for each in mine})
        )
    known = [each for each in criticals if each is not None]
    return {
        "task": task,
        "optimizer": optimizer,
        "by_seed": criticals,
        "measured": geometric_mean(known) if len(known) == len(criticals) else None,
        "branches": [asdict(each) | {"samples": samples} for each, samples in found.items()],
    }


def shown(rows: Sequence[dict[str, Any]]) -> None:
    """Print samples by batch, and measured against suggested critical batches."""
    ways = ("probe", "plain", "constant")
    batches = [f"{times * train.TUNED_AT}" for times in TIMES]
    reached = table("Samples to the target (best rate, × ruled)", *HEAD, *batches, texts=2)
    made = table(
        "Critical batch, and each suggestion with its factor of the measured one",
        *(*HEAD, "measured", "by seed", *ways),
        texts=2,
    )
    held = dict.fromkeys(ways, 0)
    for row in rows:
        name, critical = (row["task"], row["optimizer"]), row["measured"]
        for seed in dict.fromkeys(each["seed"] for each in row["branches"]):
            mine = [each["samples"] for each in row["branches"] if each["seed"] == seed]
            reached.add_row(*name, *map(_best_in_words, mine))
        cells = []
        for way in ways:
            factor = row[way] / critical if critical else math.nan
            held[way] += 1 / WITHIN <= factor <= WITHIN
            cells.append(f"{row[way]:,.0f} (× {factor:.2f})")
        made.add_row(*name, _in_words(critical), ", ".join(map(_in_words, row["by_seed"])), *cells)
    within = [f"{held[way]} of {len(rows)}" for way in ways]
    made.add_row(f"within {WITHIN} ×", "", "", "", *within)
    Console().print(reached)
    Console().print(made)


def _best_in_words(samples: dict[float, float]) -> str:
    rate = min(samples, key=lambda each: samples[each])
    return f"{samples[rate]:,.0f} ({rate:g})" if math.isfinite(samples[rate]) else "not reached"


def _in_words(critical: float | None) -> str:
    return "–" if critical is None else f"{critical:,.0f}"


def main() -> None:
    """Run all branches and probes and print the tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2, help="processes at the same time")
    parser.add_argument("--json", type=Path, help="write all runs to this file")
    options = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(options.at_once, multiprocessing.get_context("forkserver")) as pool:
        for row in measured(pool, range(FIRST_SEED, FIRST_SEED + options.seeds)):
            rows.append(row)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    shown(rows)


if __name__ == "__main__":
    main()
