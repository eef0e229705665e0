"""What the same bits on any number of workers cost: canonical beside plain DDP, in turn.

    python benchmarks/canonical.py [--workers 2] [--rounds 15] [--steps 6] [--json FILE]

Workers on this machine's CPU, with one thread each, train the small GPT of the benchmarks. In one
process, a trainer for each way takes a block of steps in turn, so that all see the same machine; a
second plain one is the null. With more parts than workers, each worker passes its share in several
forwards and backwards. First it is shown that the bits are the same: losses and weights after some
steps on all workers, on one less, and on one.
"""

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "overhead_job"))
from job import BATCH, RandomText, network, next_byte_loss, optimizer

import paceline
from paceline.comm.devices import pick_device
from paceline.comm.groups import Groups
from paceline.schedulers.placement import placement
from paceline.specs import Layout, Run, Sync
from paceline.sync.costs import traffic
from paceline.train.elastic.joined_groups import joined
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from ranks import new_run, run_ranks

PLAIN, NULL = "DDP", "DDP again"
BIT_STEPS = 12


def ways(workers: int) -> dict[str, Sync]:
    """Plain, plain again, and canonical in 1, 2 and 4 parts for each worker."""
    canonical = (Sync(mode="canonical", parts=each * workers) for each in (1, 2, 4))
    return {PLAIN: Sync(), NULL: Sync()} | {sync.short(): sync for sync in canonical}


@contextmanager
def trainer_of(sync: Sync, workers: int, steps: int, groups: Groups) -> Iterator[Trainer]:
    """A trainer of the benchmarks' job that writes nothing."""
    training = paceline.Training(
        model=network,
        loss=next_byte_loss,
        data=RandomText(),
        optimizer=optimizer,
        batch=BATCH,
        steps=steps,
    )
    telemetry = Telemetry(groups, None)
    trainer = Trainer(training, Layout(replicas=workers), groups, telemetry, sync=sync)
    yield trainer
    trainer.close()


@contextmanager
def grouped(run_path: str) -> Iterator[Groups]:
    """The groups of this rank."""
    here = placement(0)
    with joined(Run(Path(run_path)), here, pick_device(here), None) as groups:
        yield groups


def bits(parts: int, workers: int, run_path: str) -> str:
    """A hash of the last loss and the weights after some steps."""
    sync = Sync(mode="canonical", parts=parts)
    with grouped(run_path) as groups, trainer_of(sync, workers, BIT_STEPS, groups) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.conclude()
        found = hashlib.sha256(str(trainer.progress.loss).encode())
        for parameter in trainer.model.parameters():
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def blocks(workers: int, rounds: int, steps: int, run_path: str) -> dict[str, list[float]]:
    """Seconds of a step in each block."""
    every = ways(workers)
    found: dict[str, list[float]] = {name: [] for name in every}
    with grouped(run_path) as groups, ExitStack() as stack:
        trainers = {
            name: stack.enter_context(trainer_of(sync, workers, (rounds + 1) * steps, groups))
            for name, sync in every.items()
        }
        batches = {name: iter(trainer) for name, trainer in trainers.items()}
        for number in range(rounds + 1):
            for name in list(every)[:: -1 if number % 2 else 1]:
                begin = time.perf_counter()
                for _ in range(steps):
                    trainers[name].step(next(batches[name]))
                if number:  # the first round warms up
                    found[name].append((time.perf_counter() - begin) / steps)
    return found


def on_ranks(function: Any, workers: int, *arguments: Any) -> list[Any]:
    """What a function returns on each of so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder), workers)
        return run_ranks(
            function, workers, Path(folder), *arguments, str(run.path), run=run, seconds=1800
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=6, help="of a block")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    most = given.workers
    hashes = {
        str(workers): sorted(set(on_ranks(bits, workers, most, workers)))
        for workers in sorted({most, max(1, most - 1), 1}, reverse=True)
    }
    same = len({each for of_workers in hashes.values() for each in of_workers}) == 1
    seconds = on_ranks(blocks, most, most, given.rounds, given.steps)[0]
    parameters = sum(each.numel() for each in network().parameters())
    figures = {
        name: {
            "step_seconds": statistics.median(seconds[name]),
            "ratio": statistics.median(
                mine / plain for mine, plain in zip(seconds[name], seconds[PLAIN], strict=True)
            ),
            "sent_bytes_per_step": traffic(sync, most, parameters).bytes_per_step,
        }
        for name, sync in ways(most).items()
    }
    if given.json:
        said = {"workers": most, "same_bits": same, "hashes": hashes, "figures": figures}
        given.json.write_text(json.dumps(said | {"seconds": seconds}, indent=2))
    _show(figures, f"{most} workers, {given.rounds} blocks of {given.steps} steps in turn")
    Console().print(f"{'met' if same else 'NOT MET'}: the same bits on {', '.join(hashes)} workers")


def _show(figures: dict[str, dict[str, float]], title: str) -> None:
    table = Table(title=f"{title}; medians, measured")
    for column in ("way", "ms/step", "ratio to DDP", "MB sent (counted)"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, each in figures.items():
        table.add_row(
            name,
            f"{1e3 * each['step_seconds']:.1f}",
            f"{each['ratio']:.3f}",
            f"{each['sent_bytes_per_step'] / 1e6:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
