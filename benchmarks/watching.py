"""What watching costs, and how often it names a worker that is as quick as the others.

    python benchmarks/watching.py [--rounds 7] [--steps 200] [--parts cost,null] [--json]

Cost: two workers on this machine's CPU, watched, watched with replicas compared every ten steps,
and not watched, which runs first and last in every round: what differs there is noise. Steps per
second after the first ten. Null: equal workers, as many as cores and twice as many, which then take
turns; who is named there is named for nothing, or for what else runs on the machine.
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
CHECK_EVERY = 10
WAYS = {"off": 0, "on": 0, "on, compared": CHECK_EVERY, "off again": 0}
GOAL = 0.99


def steps_per_second(way: str, steps: int) -> float:
    """Of two workers that are watched in a way."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return _run(Path(folder), workers=2, watched="on" in way, steps=steps, check=WAYS[way])[0]


def named(workers: int, steps: int) -> list[Slow]:
    """Who is called slow among equal workers."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return _run(Path(folder), workers=workers, watched=True, steps=steps, check=0)[1]


def _run(
    folder: Path, *, workers: int, watched: bool, steps: int, check: int
) -> tuple[float, list[Slow]]:
    plan = Plan(
        layout=Layout(replicas=workers),
        saving=Saving(every_steps=0),
        faults=Faults(check_every=check),
    )
    (folder / "plan.toml").write_text(plan.to_toml())
    os.environ |= {"WATCHING": "on" if watched else "off", "STEPS": str(steps)}
    measured = paceline_run([JOB, "-n", workers, "--plan", folder / "plan.toml"], folder)
    (path,) = (folder / "runs").iterdir()
    lines = [line for file in Run(path).events.iterdir() for line in file.read_text().splitlines()]
    events = [event_adapter.validate_json(line) for line in lines]
    return measured.steps_per_second, [event for event in events if isinstance(event, Slow)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--parts", default="cost,null")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    if "cost" in options.parts:
        found["cost"] = _cost(options.rounds, options.steps, quiet=options.json)
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


def _cost(rounds: int, steps: int, *, quiet: bool) -> dict[str, float]:
    measured: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in track(range(rounds), "measuring", console=Console(stderr=True), disable=quiet):
        for way, rates in measured.items():
            rates.append(steps_per_second(way, steps))
    off = [(a + b) / 2 for a, b in zip(measured["off"], measured["off again"], strict=True)]
    ratios = {
        way: statistics.median(rate / base for rate, base in zip(rates, off, strict=True))
        for way, rates in measured.items()
    }
    if not quiet:
        table = Table(title=f"2 workers, {rounds} interleaved rounds, medians; measured")
        for column in ("way", "steps/s", "ratio to off"):
            table.add_column(column)
        for way, rates in measured.items():
            table.add_row(way, f"{statistics.median(rates):.2f}", f"{ratios[way]:.4f}")
        Console(stderr=True).print(table)
    return ratios | {f"on >= {GOAL}": float(ratios["on"] >= GOAL)}


if __name__ == "__main__":
    main()
