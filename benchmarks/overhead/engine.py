"""The speed of replicas and shards against the bare engine, inside one process per worker.

Two workers train the benchmarks' GPT in three ways, in blocks of steps that alternate: plain DDP or
FSDP2, Paceline, and the plain engine again, which is the null. Blocks of one process see the same
machine, so this resolves about a percent, where separate runs (`benchmarks.overhead.layouts`) do
not. A ratio above 1 means that Paceline is faster; intervals are 95 % of bootstrapped medians.
"""

import json
import statistics
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from scipy.stats import bootstrap
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import paceline
from benchmarks.common.gpt import BATCH, RandomText, network, next_byte_loss, optimizer
from benchmarks.common.gpt_training import training
from benchmarks.common.output import argument_parser, print_goals, table
from benchmarks.common.rounds import Rounds, blocks
from benchmarks.common.workers import on_workers
from benchmarks.overhead.host_cost import endless
from paceline.profile.regions import blocks as blocks_of
from paceline.specs import Layout

WORKERS, GOAL = 2, 0.99
LAYOUTS = {"replicas": Layout(replicas=WORKERS), "shards": Layout(shards=WORKERS)}


def bare_step(layout: Layout) -> Callable[[], object]:
    """Return a function that loads a batch and takes a step, in plain PyTorch."""
    model = network()
    if layout.shards > 1:
        for block in blocks_of(model):
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    update = optimizer(model.parameters())
    batches = endless(DataLoader(RandomText(), batch_size=BATCH // WORKERS, shuffle=True))

    def step() -> None:
        inputs, target = next(batches)
        loss = next_byte_loss(model(inputs), target)
        loss.backward()  # type: ignore[no-untyped-call]
        update.step()
        update.zero_grad()

    return step


def measure(rounds: int, steps: int, layout: Layout, run_path: str) -> Rounds:
    """Return the seconds per step of every way and block, on this worker."""
    del run_path
    torch.set_num_threads(1)
    with paceline.start(training(steps=(rounds + 1) * steps + 1)) as trainer:
        batches = iter(trainer)
        ways = {
            "bare": bare_step(layout),
            "paceline": lambda: trainer.step(next(batches)),
            "bare again": bare_step(layout),
        }
        return blocks(ways, rounds, steps)


def main() -> None:
    """Measure replicas and shards, and print Paceline's speed relative to the bare engine's."""
    words = argument_parser(__doc__)
    words.add_argument("--rounds", type=int, default=60, help="blocks (default: %(default)s)")
    words.add_argument("--steps", type=int, default=8, help="per block (default: %(default)s)")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for name, layout in LAYOUTS.items():
        found = on_workers(measure, WORKERS, options.rounds, options.steps, layout, layout=layout)[
            0
        ]
        row = figures[name] = {"bare_ms": 1000 * found.median("bare")}
        for title, way, bases in (
            ("paceline", "paceline", ("bare", "bare again")),
            ("null", "bare again", ("bare",)),
        ):
            speeds = [1 / ratio for ratio in found.ratios(way, *bases)]
            low, high = bootstrap((speeds,), np.median, method="percentile").confidence_interval
            row |= {title: statistics.median(speeds), f"{title}_low": low, f"{title}_high": high}
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    columns = ("layout", "bare, ms/step", "paceline", "null")
    shown = table("Speed of the same steps in alternating blocks; measured", *columns)
    for name, row in figures.items():
        ratios = (
            f"{row[each]:.3f} ({row[f'{each}_low']:.3f}-{row[f'{each}_high']:.3f})"
            for each in ("paceline", "null")
        )
        shown.add_row(name, f"{row['bare_ms']:.1f}", *ratios)
    Console().print(shown)
    print_goals(
        {
            f"{name}: at least {GOAL} of the bare engine's speed": row["paceline"] >= GOAL
            for name, row in figures.items()
        }
    )


if __name__ == "__main__":
    main()
