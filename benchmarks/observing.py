"""What it costs to know where the time goes: the same steps with the clock and without, in turn.

    python benchmarks/observing.py [--rounds 15] [--steps 6] [--json FILE]

Two workers on this machine's CPU train the small GPT of the examples as copies. In one process, one
trainer with its clock and one whose clock does nothing take turns, a block of steps each, so that
both see the same machine; a third, again without, is the null. The clock is all that the first one
has more: events are written in none of them. What a turn of the clock costs by itself is timed,
too, and what it costs to look at what the node's workers use.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "gpt"))
from examples.gpt.train import training

from paceline.comm.devices import pick_device
from paceline.observe.energy_counters import processor_counters
from paceline.observe.usage_sampler import EVENT_SECONDS, NodeWatch
from paceline.parallel.step.step_clock import Clock
from paceline.schedulers.placement import placement
from paceline.specs import Layout, Part, Run
from paceline.train.elastic.joined_groups import joined
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer
from ranks import new_run, run_ranks

ON, OFF, NULL = "clock", "no clock", "no clock again"
TURNS = 200_000
LOOKS = 50


class Still(Clock):
    """A clock that stands still."""

    def turn(self, part: Part) -> None:
        """Nothing."""


def blocks(rounds: int, steps: int, run_path: str) -> dict[str, list[float]]:
    """Seconds of a step in each block."""
    here = placement(0)
    device = pick_device(here)
    found: dict[str, list[float]] = {ON: [], OFF: [], NULL: []}
    with joined(Run(Path(run_path)), here, device, None) as groups:
        trainers = {}
        for name in found:
            telemetry = Telemetry(groups, None)
            if name != ON:
                telemetry.clock = Still()
            trainers[name] = Trainer(training(), Layout(replicas=2), groups, telemetry)
        batches = {name: iter(trainer) for name, trainer in trainers.items()}
        for number in range(rounds + 1):
            for name in list(found)[:: -1 if number % 2 else 1]:
                begin = time.perf_counter()
                for _ in range(steps):
                    trainers[name].step(next(batches[name]))
                if number:  # the first round warms up
                    found[name].append((time.perf_counter() - begin) / steps)
        for trainer in trainers.values():
            trainer.close()
    return found


def turn_seconds() -> float:
    """Of one turn."""
    clock = Clock()
    begin = time.perf_counter()
    for _ in range(TURNS):
        clock.turn("forward")
    return (time.perf_counter() - begin) / TURNS


def look_seconds() -> float:
    """Of one look at what the node's workers use; a new watcher looks for their processes first."""
    took = 0.0
    for _ in range(LOOKS):
        watch = NodeWatch(1, "lo", [], processor_counters())
        begin = time.perf_counter()
        watch.taken("node", 0)
        took += time.perf_counter() - begin
    return took / LOOKS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=6, help="of a block")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder), 2)
        found = run_ranks(
            blocks, 2, Path(folder), given.rounds, given.steps, str(run.path), run=run, seconds=900
        )[0]
    ratios = {
        name: [mine / bare for mine, bare in zip(found[name], found[OFF], strict=True)]
        for name in (ON, NULL)
    }
    turn, look = turn_seconds(), look_seconds()
    step = statistics.median(found[OFF])
    cost = statistics.median(ratios[ON]) - 1
    if given.json:
        given.json.write_text(
            json.dumps({"seconds": found, "turn_seconds": turn, "look_seconds": look}, indent=2)
        )
    console = Console(highlight=False)
    console.print(f"step without clock: {1e3 * step:.1f} ms, median of {given.rounds} blocks")
    for name, values in ratios.items():
        low, high = min(values), max(values)
        middle = statistics.median(values)
        console.print(f"{name} / {OFF}: {middle:.4f} (single blocks {low:.3f} to {high:.3f})")
    console.print(f"one turn of the clock: {1e9 * turn:.0f} ns, about 12 in a step")
    console.print(
        f"one look at the node: {1e3 * look:.2f} ms every {EVENT_SECONDS:.0f} s,"
        f" {look / EVENT_SECONDS:.3%} of a core"
    )
    console.print(f"{'met' if cost <= 0.01 else 'NOT MET'}: {cost:+.2%} (target <= 1%)")


if __name__ == "__main__":
    main()
