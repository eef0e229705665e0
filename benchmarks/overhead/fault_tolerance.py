"""What it costs to be prepared for faults, and how often a worker is named for nothing.

Cost: two workers; in every second block of 20 steps they are watched, compare their replicas and
copy their state to each other's memory, both every ten steps. A block is compared with the two
beside it, which share what else the machine does, and blocks without with those before and after:
what differs there is noise. On `paced` devices (emulated: they wait, as a processor does for an
accelerator) and on the `cpu`, whose cores also do all that is measured here. Membership cannot be
put off: the processor time of its thread is told. Null: equal workers, as many as cores and twice
as many, which then take turns; who is named there is named for nothing, or for what else runs.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from benchmarks.common.runs import paceline_run
from benchmarks.overhead.fault_tolerance_train import BLOCK, COPY_AT, COPY_EVERY, prepared
from paceline.specs import Event, Faults, Layout, Plan, Run, Saving, Slow, Steps, event_adapter

JOB = Path(__file__).parent / "fault_tolerance_train.py"
DEVICES = ("paced", "cpu")
GOAL = 0.99


@dataclass(frozen=True)
class Cost:
    """Of being prepared, as speeds beside those of the blocks around."""

    prepared: float
    prepared_quartiles: tuple[float, float]
    not_prepared: float
    not_prepared_quartiles: tuple[float, float]
    steps_per_second: float
    """Of the blocks that are not prepared; median."""
    more_seconds: float
    """By which ten prepared steps take longer: means without the slowest and quickest tenths, by a
    step's place in the ten. Finer than the medians, which what falls on a block disturbs."""
    more_seconds_at_a_copy: float
    """The part of that in the step after which the state is copied, and in the next one."""
    control_share: float
    """Of a core, by one worker's membership."""
    reaches_goal: bool


def cost(device: str, blocks: int) -> Cost:
    """Train once; the first two blocks and the last one do not count."""
    faults = Faults(check_every=10, copy_every=10)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        run, events = _run(Path(name), 2, device, BLOCK * blocks, faults, alternate=True)
        control = [float(path.read_text()) for path in run.path.glob("control-*")]
    seconds = [each for event in events if isinstance(event, Steps) for each in event.seconds]
    lasted = [sum(seconds[begin : begin + BLOCK]) for begin in range(0, len(seconds), BLOCK)]
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2, len(lasted) - 2):
        on = prepared(BLOCK * number + 1)
        # Neighbours are without; those of a block without are two further.
        apart = 1 if on else 2
        around = statistics.mean((lasted[number - apart], lasted[number + apart]))
        speeds[on].append(around / lasted[number])
    bare = [each for number, each in enumerate(lasted) if not prepared(BLOCK * number + 1)]
    middle = {on: statistics.median(found) for on, found in speeds.items()}
    more = [
        _trimmed_mean(_at_place(seconds, placement, on=True))
        - _trimmed_mean(_at_place(seconds, placement, on=False))
        for placement in range(COPY_EVERY)
    ]
    return Cost(
        prepared=middle[True],
        prepared_quartiles=_quartiles(speeds[True]),
        not_prepared=middle[False],
        not_prepared_quartiles=_quartiles(speeds[False]),
        steps_per_second=BLOCK / statistics.median(bare),
        more_seconds=sum(more),
        more_seconds_at_a_copy=more[COPY_AT - 1] + more[COPY_AT],
        control_share=statistics.mean(control) / sum(seconds),
        reaches_goal=middle[True] >= GOAL,
    )


def _at_place(seconds: Sequence[float], placement: int, *, on: bool) -> list[float]:
    """Of the steps at a place among every ten, but for those of the first two blocks."""
    numbers = range(2 * BLOCK + placement, len(seconds), COPY_EVERY)
    return [seconds[number] for number in numbers if prepared(number + 1) == on]


def _trimmed_mean(found: Sequence[float]) -> float:
    cut = len(found) // 10
    return statistics.mean(sorted(found)[cut : len(found) - cut])


def named(workers: int, steps: int) -> list[Slow]:
    """Who is called slow among equal workers."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        _, events = _run(Path(name), workers, "cpu", steps, Faults(), alternate=False)
    return [event for event in events if isinstance(event, Slow)]


def _quartiles(found: Sequence[float]) -> tuple[float, float]:
    first, _, last = statistics.quantiles(found, n=4)
    return first, last


def _run(
    folder: Path, workers: int, device: str, steps: int, faults: Faults, *, alternate: bool
) -> tuple[Run, list[Event]]:
    plan = Plan(layout=Layout(replicas=workers), saving=Saving(every_steps=0), faults=faults)
    (folder / "plan.toml").write_text(plan.to_toml())
    turns = "yes" if alternate else "no"
    os.environ |= {"ALTERNATE": turns, "DEVICE": device, "STEPS": str(steps)}
    paceline_run([JOB, "-n", workers, "--plan", folder / "plan.toml"], folder)
    (path,) = (folder / "runs").iterdir()
    run = Run(path)
    lines = [line for file in run.events.iterdir() for line in file.read_text().splitlines()]
    return run, [event_adapter.validate_json(line) for line in lines]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=60, help="of 20 steps, for the cost")
    parser.add_argument("--rounds", type=int, default=7, help="of 200 steps, for the null")
    parser.add_argument("--parts", default="paced,cpu,null")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    costs: dict[str, Cost] = {}
    devices = [device for device in DEVICES if device in options.parts]
    for device in track(devices, "cost", console=Console(stderr=True), disable=options.json):
        costs[device] = cost(device, options.blocks)
    found["cost"] = {device: asdict(each) for device, each in costs.items()}
    if "null" in options.parts:
        cores = len(os.sched_getaffinity(0))
        found["null"] = {
            f"{workers} workers on {cores} cores": [
                f"worker {each.rank} at step {each.step}: {each.times:.1f}x, {each.why}"
                for _ in range(options.rounds)
                for each in named(workers, 200)
            ]
            for workers in (cores, 2 * cores)
        }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    table = Table(title="Speed beside that of the blocks around; medians (quartiles)")
    for column in (
        "device",
        "prepared",
        "not prepared (noise)",
        "steps/s",
        "10 steps more",
        "membership",
    ):
        table.add_column(column)
    for device, each in costs.items():
        table.add_row(
            device,
            _with_quartiles(each.prepared, each.prepared_quartiles),
            _with_quartiles(each.not_prepared, each.not_prepared_quartiles),
            f"{each.steps_per_second:.2f}",
            f"{each.more_seconds * 1e3:.0f} ms, {each.more_seconds_at_a_copy * 1e3:.0f} at a copy",
            f"{each.control_share:.2%} of a core",
        )
    Console().print(table)
    if "null" in found:
        print(json.dumps(found["null"], indent=2))


def _with_quartiles(middle: float, quartiles: tuple[float, float]) -> str:
    return f"{middle:.4f} ({quartiles[0]:.3f} to {quartiles[1]:.3f})"


if __name__ == "__main__":
    main()
