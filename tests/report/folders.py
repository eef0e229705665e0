"""Run folders as a run would leave them, written with the real specs."""

import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.specs import (
    Ended,
    Event,
    Failed,
    Finished,
    Job,
    Layout,
    Outcome,
    Plan,
    Resumed,
    Run,
    Saved,
    Started,
    Steps,
    Workers,
    WorkerState,
)

BATCH = 64


def empty_run(parent: Path, *, name: str = "gpt", nodes: int = 4) -> Run:
    """A run's folder before any worker started."""
    job = Job(
        name=name,
        train=Path("/home/ada/train.py"),
        nodes=nodes,
        folder=Path("/home/ada"),
        python=Path("/usr/bin/python3"),
        scheduler="slurm",
        partition="batch",
    )
    run = Run.create(parent, job, Plan(layout=Layout(replicas=nodes)))
    run.versions_file.write_text(
        'python = "3.11.2"\nsystem = "Linux-6.1.0-amd64-x86_64"\n\n[packages]\npaceline = "0.1.0"\n'
        'torch = "2.9.0"\n'
    )
    return run


def say(run: Run, event: Event, *, file: str | None = None) -> None:
    """Append one event to its node's file."""
    with (run.events / f"{file or event.node}.jsonl").open("a") as stream:
        stream.write(event.model_dump_json() + "\n")


def started(
    rank: int,
    *,
    workers: int = 4,
    steps: int = 500,
    batch: int = BATCH,
    generation: int = 0,
    at: float | None = None,
) -> Started:
    """Worker `rank`, alone on its node, has started."""
    return Started(
        time=time.time() if at is None else at,
        node=f"n{rank + 1}",
        generation=generation,
        ranks=[rank],
        workers=workers,
        nodes=workers,
        device="cpu",
        backend="gloo",
        interface="eth0",
        address=f"10.0.0.{rank + 1}",
        threads=1,
        parameters=1_230_000,
        batch=batch,
        steps=steps,
        startup_seconds=3.0 + rank / 10,
    )


def steps(
    first: int,
    losses: Sequence[float],
    *,
    seconds: float | Sequence[float] = 0.1,
    generation: int = 0,
    at: float | None = None,
) -> Steps:
    """Some steps, as worker 0's node writes them."""
    each = [seconds] * len(losses) if isinstance(seconds, float | int) else list(seconds)
    return Steps(
        time=time.time() if at is None else at,
        node="n1",
        generation=generation,
        first=first,
        loss=list(losses),
        seconds=each,
        samples=[BATCH] * len(losses),
    )


def workers(
    rank: int, step: int, step_seconds: float, *, generation: int = 0, at: float | None = None
) -> Workers:
    """The state of worker `rank`, alone on its node."""
    return Workers(
        time=time.time() if at is None else at,
        node=f"n{rank + 1}",
        generation=generation,
        states=[WorkerState(rank=rank, step=step, step_seconds=step_seconds)],
    )


def failed(
    rank: int, message: str, *, at: float, lost_peer: bool = False, generation: int = 0
) -> Failed:
    """Worker `rank` failed."""
    return Failed(
        time=at,
        node=f"n{rank + 1}",
        generation=generation,
        rank=rank,
        message=message,
        lost_peer=lost_peer,
    )


def saved(step: int, *, generation: int = 0, at: float | None = None) -> Saved:
    """A complete checkpoint of 50 MB, of which a fifth had not changed."""
    return Saved(
        time=time.time() if at is None else at,
        node="n1",
        generation=generation,
        step=step,
        bytes=50_000_000,
        linked_bytes=10_000_000,
        seconds=0.8,
        stall_seconds=0.01,
    )


def resumed(step: int, *, generation: int, at: float, node: str = "n1") -> Resumed:
    """A checkpoint was taken up."""
    return Resumed(time=at, node=node, generation=generation, step=step, seconds=0.2)


def finished(
    count: int, *, generation: int = 0, at: float = 1.0, outcome: Outcome = "finished"
) -> Finished:
    """The workers' last word after steps of a tenth of a second."""
    return Finished(
        time=at,
        node="n1",
        generation=generation,
        outcome=outcome,
        steps=count,
        samples=count * BATCH,
        seconds=count / 10,
    )


def ended(exit_code: int, *, generation: int = 0) -> Ended:
    """The batch script's last word."""
    return Ended(time=time.time(), node="n1", generation=generation, exit_code=exit_code)


def interrupted_run(parent: Path) -> Run:
    """100 steps in three starts: a worker killed at step 38 of 4, the time limit at 70 of 3."""
    run = empty_run(parent)
    began = time.time() - 1000
    story = [  # generation, workers, from, to, checkpoints, seconds after the beginning
        (0, 4, 0, 38, [20], 0.0),
        (1, 3, 20, 70, [40, 60, 70], 100.0),
        (2, 2, 70, 100, [80, 100], 400.0),
    ]
    for generation, count, first, last, steps_saved, after in story:
        at = began + after
        if generation:
            say(run, resumed(first, generation=generation, at=at - 1))
        for rank in range(count):
            say(run, started(rank, workers=count, steps=100, generation=generation, at=at))
        losses = [3.0 - step / 50 for step in range(first, last)]
        at += 0.1 * len(losses)
        say(run, steps(first + 1, losses, generation=generation, at=at))
        for rank in range(count):
            say(run, workers(rank, last, 0.1, generation=generation, at=at))
        for step in steps_saved:
            say(run, saved(step, generation=generation, at=at))
    say(run, failed(2, "killed by SIGKILL", at=began + 20))
    say(run, ended(137), file="batch")
    end = began + 105.0
    say(run, finished(70, generation=1, at=end, outcome="interrupted"))
    say(run, finished(100, generation=2, at=began + 403))
    say(run, ended(0, generation=2), file="batch")
    return run


def realistic_run(
    parent: Path, *, count: int = 500, until: int | None = None, name: str = "gpt"
) -> Run:
    """A noisy falling loss on four nodes, the fourth a bit slow, the first step long."""
    chance = random.Random(7)
    run = empty_run(parent, name=name)
    began = time.time() - count * 0.13
    for rank in range(4):
        say(run, started(rank, steps=count, at=began))
    taken = until or count
    losses = [
        1.4 + 3.1 * math.exp(-step / (count / 5)) + chance.gauss(0, 0.08) for step in range(taken)
    ]
    seconds = [max(0.05, chance.gauss(0.12, 0.006)) for _ in range(taken)]
    seconds[0] = 1.7
    seconds[taken // 3] = 0.31
    for first in range(0, taken, 10):
        at = began + sum(seconds[: first + 10])
        say(
            run,
            steps(
                first + 1, losses[first : first + 10], seconds=seconds[first : first + 10], at=at
            ),
        )
        for rank in range(4):
            own = 0.12 * (1.36 if rank == 3 else 1 + rank / 100)
            say(run, workers(rank, min(first + 10, taken), own, at=at))
    if until is None:
        total = sum(seconds)
        say(
            run,
            Finished(
                time=began + total,
                node="n1",
                outcome="finished",
                steps=count,
                samples=count * BATCH,
                seconds=total,
            ),
        )
        say(run, ended(0), file="batch")
    return run


def failed_run(parent: Path) -> Run:
    """Worker 2 runs out of memory at step 137, the others lose it."""
    run = realistic_run(parent, until=137)
    now = time.time()
    for rank in (0, 1, 3):
        say(run, failed(rank, "Connection closed by peer [10.0.0.3]:41234", at=now, lost_peer=True))
    message = (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] could not allocate 4294967296 bytes"
    )
    say(run, failed(2, message, at=now + 1))
    traceback = [
        "Traceback (most recent call last):",
        '  File "/home/ada/train.py", line 41, in loss',
        "    scores = query @ key.transpose(-2, -1)",
        "             ~~~~~~^^^~~~~~~~~~~~~~~~~~~~~",
        message,
    ]
    log = "".join(f"2: {line}\n" for line in ["step 100: all well", *traceback])
    (run.logs / "n3.log").write_text(log)
    say(run, ended(1), file="batch")
    return run
