"""Microseconds that Paceline adds to a step of a tiny model, on the host.

One process trains the same tiny model in four ways, in blocks of steps that alternate: a bare loop
(on two workers with DDP), the bare loop again (the null), iterating over the trainer without
stepping against the bare DataLoader, and iterating and stepping. The model is so small that its
kernels take little of the step; what Paceline adds is the difference to the bare loop of the same
operations.

The figure is CPU time of the thread that trains, which leaves out waiting for the other worker and
for other programs on the machine; wall time stands beside it.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import paceline
from benchmarks.common.output import argument_parser, print_goals, table
from benchmarks.common.rounds import Rounds, blocks_by_clock
from benchmarks.common.workers import on_workers

FEATURES, CLASSES, BATCH = 16, 4, 32
SAMPLES = 100_000
GOALS_MICROSECONDS = {1: 100.0, 2: 150.0}
CLOCKS = {"CPU": time.thread_time, "wall": time.perf_counter}


def network() -> nn.Module:
    """Build the tiny model."""
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    """Build the optimizer that all ways share."""
    return torch.optim.SGD(parameters, lr=0.01)


def dataset() -> TensorDataset:
    """Return random samples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return TensorDataset(inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator))


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield batches for ever."""
    while True:
        yield from loader


def bare_step(workers: int) -> Callable[[], object]:
    """Return a function that loads a batch and takes a step, in plain PyTorch."""
    model = network()
    if workers > 1:
        model = DistributedDataParallel(model)
    update = optimizer(model.parameters())
    batches = endless(DataLoader(dataset(), batch_size=BATCH // workers, shuffle=True))

    def step() -> None:
        inputs, target = next(batches)
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()  # type: ignore[no-untyped-call]
        update.step()
        update.zero_grad()

    return step


def measure(rounds: int, steps: int, run_path: str) -> dict[str, Rounds]:
    """Return the seconds per step of every way and block, on this worker, by clock."""
    del run_path
    training = paceline.Training(
        model=network,
        loss=F.cross_entropy,
        data=dataset(),
        optimizer=optimizer,
        batch=BATCH,
        steps=(rounds + 1) * steps * 2 + 1,
    )
    with paceline.start(training) as trainer:
        workers = dist.get_world_size() if dist.is_initialized() else 1
        batches = iter(trainer)
        loaded = endless(DataLoader(dataset(), batch_size=BATCH // workers, shuffle=True))
        ways = {
            "bare": bare_step(workers),
            "paceline": lambda: trainer.step(next(batches)),
            "bare again": bare_step(workers),
            "bare loader": lambda: next(loaded),
            "iterating": lambda: next(batches),
        }
        return blocks_by_clock(ways, rounds, steps, CLOCKS)


def main() -> None:
    """Measure on one worker and on two, and print the differences."""
    words = argument_parser(__doc__)
    words.add_argument("--rounds", type=int, default=40, help="blocks (default: %(default)s)")
    words.add_argument("--steps", type=int, default=50, help="per block (default: %(default)s)")
    words.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = words.parse_args()
    torch.set_num_threads(1)
    figures = {}
    for workers in GOALS_MICROSECONDS:
        found = on_workers(measure, workers, options.rounds, options.steps)[0]
        figures[workers] = {
            "bare": 1e6 * found["CPU"].median("bare"),
            "added": _added(found["CPU"], "paceline", "bare"),
            "null": _added(found["CPU"], "bare again", "bare"),
            "of that iterating": _added(found["CPU"], "iterating", "bare loader"),
            "wall: bare": 1e6 * found["wall"].median("bare"),
            "wall: added": _added(found["wall"], "paceline", "bare"),
            "wall: null": _added(found["wall"], "bare again", "bare"),
        }
    _print(figures, as_json=options.json)


def _added(found: Rounds, way: str, base: str) -> float:
    """Return the median over the rounds of a way's microseconds less the base's."""
    return 1e6 * statistics.median(each[way] - each[base] for each in found.values)


def _print(figures: dict[int, dict[str, float]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    columns = list(next(iter(figures.values())))
    shown = table(
        "Microseconds of CPU per step, medians of alternating blocks; measured", "workers"
    )
    for column in columns:
        shown.add_column(column, justify="right")
    for workers, row in figures.items():
        shown.add_row(str(workers), *(f"{row[column]:.0f}" for column in columns))
    Console().print(shown)
    print_goals(
        {
            f"{workers} worker(s): at most {goal:.0f} us are added": figures[workers]["added"]
            <= goal
            for workers, goal in GOALS_MICROSECONDS.items()
        }
    )


if __name__ == "__main__":
    main()
