"""What the same bits on any number of workers cost: canonical mode against plain DDP, in turn.

Workers on this machine's CPU, with one thread each, train the GPT of the benchmarks. In one
process, a trainer for each mode runs a block of steps in turn, so that all see the same machine; a
second plain one shows the noise. With more parts than workers, each worker runs its local batch in
several forwards and backwards. First the benchmark checks that the bits are the same: losses and
weights after some steps on all workers, on one less, and on one.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.common.gpt import network
from benchmarks.common.gpt_training import training
from benchmarks.common.output import argument_parser, print_goals, table
from benchmarks.common.rounds import Rounds, blocks
from benchmarks.common.workers import on_workers, process_groups
from paceline.comm.groups import Groups
from paceline.specs import Layout, SyncSettings
from paceline.specs.plans.traffic import ReplicatedPart
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.canonical import Canonical
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer

PLAIN, NULL = "DDP", "DDP again"
BIT_STEPS = 12


def modes(workers: int) -> dict[str, SyncSettings]:
    """Return plain DDP twice, and canonical mode with 1, 2 and 4 parts per worker."""
    canonical = (Canonical(parts=each * workers) for each in (1, 2, 4))
    return {PLAIN: AllReduce(), NULL: AllReduce()} | {sync.short(): sync for sync in canonical}


@contextmanager
def trainer_of(sync: SyncSettings, workers: int, steps: int, groups: Groups) -> Iterator[Trainer]:
    """Make a trainer that writes no events, and close it."""
    layout, telemetry = Layout(replicas=workers), Telemetry(groups, None)
    trainer = Trainer(training(steps), layout, groups, telemetry, sync=sync)
    yield trainer
    trainer.close()


def bits(parts: int, workers: int, run_path: str) -> str:
    """Return a hash of the last loss and the weights after some steps."""
    sync = Canonical(parts=parts)
    with process_groups(run_path) as groups, trainer_of(sync, workers, BIT_STEPS, groups) as made:
        for batch in made:
            made.step(batch)
        made.conclude()
        found = hashlib.sha256(str(made.progress.loss).encode())
        for parameter in made.model.parameters():
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def step_seconds(workers: int, rounds: int, steps: int, run_path: str) -> Rounds:
    """Return the seconds per step of each mode in each round."""
    with process_groups(run_path) as groups, ExitStack() as stack:
        trainers = {
            name: stack.enter_context(trainer_of(sync, workers, (rounds + 1) * steps, groups))
            for name, sync in modes(workers).items()
        }
        batches = {name: iter(trainer) for name, trainer in trainers.items()}

        def step(name: str) -> None:
            trainers[name].step(next(batches[name]))

        return blocks({name: partial(step, name) for name in trainers}, rounds, steps)


def main() -> None:
    """Compare the bits, measure the blocks, print both."""
    words = argument_parser(__doc__)
    words.add_argument("--workers", type=int, default=2, help="workers (default: %(default)s)")
    words.add_argument("--rounds", type=int, default=15, help="blocks (default: %(default)s)")
    words.add_argument("--steps", type=int, default=6, help="in a block (default: %(default)s)")
    words.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    options = words.parse_args()
    most = options.workers
    hashes = {
        str(workers): sorted(set(on_workers(bits, workers, most, workers)))
        for workers in sorted({most, max(1, most - 1), 1}, reverse=True)
    }
    same = len({each for of_workers in hashes.values() for each in of_workers}) == 1
    found: Rounds = on_workers(step_seconds, most, most, options.rounds, options.steps)[0]
    parameters = sum(each.numel() for each in network().parameters())
    figures = {
        name: {
            "step_seconds": found.median(name),
            "ratio": found.ratio(name, PLAIN),
            "sent_bytes_per_step": sync.traffic(ReplicatedPart(most, parameters)).bytes_per_step,
        }
        for name, sync in modes(most).items()
    }
    if options.json:
        written = {"workers": most, "same_bits": same, "hashes": hashes, "figures": figures}
        seconds = {name: found.of(name) for name in figures}
        options.json.write_text(json.dumps(written | {"seconds": seconds}, indent=2))
    shown = table(
        f"{most} workers, {options.rounds} blocks of {options.steps} steps in turn;"
        " medians, measured",
        *("mode", "ms/step", "ratio to DDP", "MB sent (counted)"),
    )
    for name, each in figures.items():
        shown.add_row(
            name,
            f"{1e3 * each['step_seconds']:.1f}",
            f"{each['ratio']:.3f}",
            f"{each['sent_bytes_per_step'] / 1e6:.2f}",
        )
    Console().print(shown)
    print_goals({f"the same bits on {', '.join(hashes)} workers": same})


if __name__ == "__main__":
    main()
