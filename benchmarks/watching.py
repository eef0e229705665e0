"""What it costs to be prepared for faults, and how often a worker is named for nothing.

    python benchmarks/watching.py [--rounds 7] [--steps 200] [--parts paced,cpu,null] [--json]

Cost: two workers, with nothing (no membership, no watching), with what every run has, and with all:
replicas compared and the state copied to the other's memory every ten steps. With nothing runs
first and last in every round: what differs there is noise. Steps per second after the first ten,
on `paced` devices (emulated: they wait, as a processor does for an accelerator) and on the `cpu`,
whose cores also do all that is measured here. Null: equal workers, as many as cores and twice as
many, which then take turns; who is named there is named for nothing, or for what else runs there.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from overhead import paceline_run
from rich.console import Console
from rich.progress import track
from rich.table import Table

from paceline.specs import Faults, Layout, Plan, Run, Saving, Slow, event_adapter

JOB = Path(__file__).parent / "watching_job" / "train.py"
NOTHING = Faults(regroup=False)
WAYS = {
    "nothing": NOTHING,
    "as always": Faults(),
    "all": Faults(check_every=10, copy_every=10),
    "nothing again": NOTHING,
}
GOAL = 0.99
DEVICES = ("paced", "cpu")


def steps_per_second(way: str, device: str, steps: int) -> float:
    """Of two workers that are prepared in a way."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return _run(Path(folder), workers=2, device=device, steps=steps, faults=WAYS[way])[0]


def named(workers: int, steps: int) -> list[Slow]:
    """Who is called slow among equal workers."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return _run(Path(folder), workers=workers, device="cpu", steps=steps, faults=Faults())[1]


def _run(
    folder: Path, *, workers: int, device: str, steps: int, faults: Faults
) -> tuple[float, list[Slow]]:
    plan = Plan(layout=Layout(replicas=workers), saving=Saving(every_steps=0), faults=faults)
    (folder / "plan.toml").write_text(plan.to_toml())
    watched = "off" if faults == NOTHING else "on"
    os.environ |= {"WATCHING": watched, "DEVICE": device, "STEPS": str(steps)}
    measured = paceline_run([JOB, "-n", workers, "--plan", folder / "plan.toml"], folder)
    (path,) = (folder / "runs").iterdir()
    lines = [line for file in Run(path).events.iterdir() for line in file.read_text().splitlines()]
    events = [event_adapter.validate_json(line) for line in lines]
    return measured.steps_per_second, [event for event in events if isinstance(event, Slow)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--parts", default="paced,cpu,null")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    for device in DEVICES:
        if device in options.parts:
            found[device] = _cost(device, options.rounds, options.steps, quiet=options.json)
    if "null" in options.parts:
        cores = len(os.sched_getaffinity(0))
        found["null"] = {
            f"{workers} workers on {cores} cores": {
                "steps": options.rounds * options.steps,
                "named": [
                    f"worker {each.rank} at step {each.step}: {each.times:.1f}x, {each.why}"
                    for _ in range(options.rounds)
                    for each in named(workers, options.steps)
                ],
            }
            for workers in (cores, 2 * cores)
        }
    print(json.dumps(found, indent=2))


def _cost(device: str, rounds: int, steps: int, *, quiet: bool) -> dict[str, float]:
    measured: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in track(range(rounds), device, console=Console(stderr=True), disable=quiet):
        for way, rates in measured.items():
            rates.append(steps_per_second(way, device, steps))
    ends = zip(measured["nothing"], measured["nothing again"], strict=True)
    bare = [statistics.mean(both) for both in ends]
    ratios = {
        way: statistics.median(rate / base for rate, base in zip(rates, bare, strict=True))
        for way, rates in measured.items()
    }
    if not quiet:
        table = Table(title=f"2 workers, {device}, {rounds} interleaved rounds, medians")
        for column in ("prepared with", "steps/s", "ratio to nothing"):
            table.add_column(column)
        for way, rates in measured.items():
            table.add_row(way, f"{statistics.median(rates):.2f}", f"{ratios[way]:.4f}")
        Console(stderr=True).print(table)
    return ratios | {f"all >= {GOAL}": float(ratios["all"] >= GOAL)}


if __name__ == "__main__":
    main()
