"""What the step breakdown costs: the same steps with its clock and without, in turn.

Two workers on this machine's CPU train the GPT of the benchmarks as replicas. In one process, a
trainer with its clock and one whose clock does nothing run a block of steps each, so that both see
the same machine; a third, again without, shows the noise. None of them writes events. The cost of
one turn of the clock is timed by itself, and so is one sample of the node's resource usage.
"""

import json
import time
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.common.gpt_training import training
from benchmarks.common.output import argument_parser, print_goals
from benchmarks.common.rounds import Rounds, blocks
from benchmarks.common.workers import on_workers, process_groups
from paceline.observe.usage.energy_counters import processor_counters
from paceline.observe.usage.usage_sampler import EVENT_SECONDS, NodeWatch
from paceline.parallel.step.step_clock import Clock
from paceline.specs import Layout, Part
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.trainer import Trainer

WORKERS = 2
ON, OFF, NULL = "clock", "no clock", "no clock again"
TURNS = 200_000
SAMPLES = 50
GOAL = 0.01


class Still(Clock):
    """A clock that stands still."""

    def turn(self, part: Part) -> None:
        """Do nothing."""


def step_seconds(rounds: int, steps: int, run_path: str) -> Rounds:
    """Return the seconds per step of each trainer in each round."""
    trainers = {}
    with process_groups(run_path) as groups:
        for name in (ON, OFF, NULL):
            telemetry = Telemetry(groups, None)
            if name != ON:
                telemetry.clock = Still()
            trainers[name] = Trainer(
                training((rounds + 1) * steps), Layout(replicas=WORKERS), groups, telemetry
            )
        batches = {name: iter(trainer) for name, trainer in trainers.items()}

        def step(name: str) -> None:
            trainers[name].step(next(batches[name]))

        found = blocks({name: partial(step, name) for name in trainers}, rounds, steps)
        for trainer in trainers.values():
            trainer.close()
    return found


def turn_seconds() -> float:
    """Time one turn of the clock."""
    clock = Clock()
    begin = time.perf_counter()
    for _ in range(TURNS):
        clock.turn("forward")
    return (time.perf_counter() - begin) / TURNS


def sample_seconds() -> float:
    """Time one sample of the node's usage; a new watch has to find the workers' processes first."""
    total = 0.0
    for _ in range(SAMPLES):
        watch = NodeWatch(1, "lo", [], processor_counters())
        begin = time.perf_counter()
        watch.taken("node", 0)
        total += time.perf_counter() - begin
    return total / SAMPLES


def main() -> None:
    """Measure and print."""
    words = argument_parser(__doc__)
    words.add_argument("--rounds", type=int, default=15, help="blocks (default: %(default)s)")
    words.add_argument("--steps", type=int, default=6, help="in a block (default: %(default)s)")
    words.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    options = words.parse_args()
    found: Rounds = on_workers(step_seconds, WORKERS, options.rounds, options.steps)[0]
    turn, sample = turn_seconds(), sample_seconds()
    if options.json:
        seconds = {name: found.of(name) for name in (ON, OFF, NULL)}
        figures = {"seconds": seconds, "turn_seconds": turn, "look_seconds": sample}
        options.json.write_text(json.dumps(figures, indent=2))
    console = Console(highlight=False)
    console.print(
        f"step without clock: {1e3 * found.median(OFF):.1f} ms, median of {options.rounds} blocks"
    )
    for name in (ON, NULL):
        ratios = found.ratios(name, OFF)
        console.print(
            f"{name} / {OFF}: {found.ratio(name, OFF):.4f}"
            f" (single blocks {min(ratios):.3f} to {max(ratios):.3f})"
        )
    console.print(f"one turn of the clock: {1e9 * turn:.0f} ns, about 12 per step")
    console.print(
        f"one sample of the node: {1e3 * sample:.2f} ms every {EVENT_SECONDS:.0f} s,"
        f" {sample / EVENT_SECONDS:.3%} of a core"
    )
    cost = found.ratio(ON, OFF) - 1
    print_goals({f"{cost:+.2%} (goal: at most {GOAL:.0%})": cost <= GOAL})


if __name__ == "__main__":
    main()
