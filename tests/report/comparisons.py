"""Runs to compare, whose workers say where their time goes; the same whenever they are made."""

import math
import random
from pathlib import Path

from paceline.specs import (
    Finished,
    Job,
    Layout,
    Part,
    Plan,
    Run,
    Steps,
    SyncSettings,
    Workers,
    WorkerState,
)
from paceline.sync.modes.allreduce import AllReduce
from report.folders import say, started

BEGAN = 1_767_600_000.0
WINDOW = 10


def divided_run(
    parent: Path,
    name: str,
    *,
    workers: int = 4,
    steps: int = 300,
    batch: int = 64,
    floor: float = 1.4,
    sync: SyncSettings | None = None,
    waiting: float = 0.02,
    ends: bool = True,
) -> Run:
    """Computes 0.4 seconds by the number of workers in a step, and waits in the rest."""
    chance = random.Random(f"{name}{workers}")
    path = parent / name
    job = Job(
        name="gpt",
        train=Path("/home/ada/train.py"),
        nodes=workers,
        folder=Path("/home/ada"),
        python=Path("/usr/bin/python3"),
    )
    run = Run(path)
    run.events.mkdir(parents=True)
    job.write(run.job_file)
    Plan(layout=Layout(replicas=workers), sync=sync or AllReduce()).write(run.plan_file)
    computing = 0.4 / workers
    usual = computing + waiting
    for rank in range(workers):
        say(run, started(rank, workers=workers, steps=steps, batch=batch, at=BEGAN))
    total = 0.0
    for first in range(1, steps + 1, WINDOW):
        count = min(WINDOW, steps + 1 - first)
        seconds = [usual * (1 + abs(chance.gauss(0, 0.03))) for _ in range(count)]
        total += sum(seconds)
        loss = [
            floor + 3.1 * math.exp(-(first + at) * batch / 4000) + chance.gauss(0, 0.04)
            for at in range(count)
        ]
        window = {"time": BEGAN + total, "first": first, "loss": loss, "seconds": seconds}
        say(run, Steps(node="n1", samples=[batch] * count, **window))
        for rank in range(workers):
            late = 0.1 * waiting * rank / workers
            parts: dict[Part, float] = {
                "data": 0.02 * computing,
                "forward": 0.3 * computing,
                "backward": 0.6 * computing,
                "optimizer": 0.08 * computing + late,
                "communication": waiting - late,
            }
            state = WorkerState(rank=rank, step=first + count - 1, step_seconds=usual, parts=parts)
            say(run, Workers(time=BEGAN + total, node=f"n{rank + 1}", states=[state]))
    if ends:
        done = {"steps": steps, "samples": steps * batch, "seconds": total}
        say(run, Finished(time=BEGAN + total, node="n1", outcome="finished", **done))
    return run


def three_runs(parent: Path) -> list[Run]:
    """On two and on four workers, and on four that exchange less and learn a bit less."""
    return [
        divided_run(parent, "gpt-two", workers=2),
        divided_run(parent, "gpt-four", workers=4, waiting=0.06),
        divided_run(
            parent,
            "gpt-four-local",
            floor=1.55,
            sync=SyncSettings.parse("local:every=8"),
            waiting=0.01,
        ),
    ]
