"""Run a function on N real ranks, quickly: processes forked from a server that has torch loaded."""

import faulthandler
import multiprocessing as mp
import os
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import device_choice
from paceline.specs import Faults, Job, Layout, Plan, Run, Saving, SyncSettings

# torch._dynamo is what the first step of any optimizer loads.
_PRELOADED = ["torch._dynamo", "torch.distributed.tensor", "paceline.train.fit"]


PATIENT = Faults(lease_seconds=20.0)
"""Ranks wait for a core on a busy machine; whoever does so for a lease is ended as if it hung."""


class RankFailed(AssertionError):
    """A rank raised, died, or did not end in time; the message holds its traceback."""


def run_ranks(
    function: Callable[..., Any],
    workers: int,
    folder: Path,
    *arguments: Any,
    seconds: float = 60.0,
    layout: Layout | None = None,
    run: Run | None = None,
) -> list[Any]:
    """What `function(*arguments)` returns on each of `workers` ranks of a run in `folder`, or of
    one that is there already."""
    run = run or new_run(folder, workers, layout)
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ranks: list[tuple[ForkServerProcess, Connection]] = []
    try:
        for rank in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_main,
                args=(sender, run.path, rank, workers, device_choice.chosen, function, arguments),
                daemon=True,
            )
            process.start()
            sender.close()
            ranks.append((process, receiver))
        return _collect(ranks, time.monotonic() + seconds)
    finally:
        for process, receiver in ranks:
            process.kill()
            process.join(10)
            assert process.exitcode is not None, f"{process.name} is left behind"
            process.close()
            receiver.close()


def new_run(
    folder: Path,
    workers: int,
    layout: Layout | None = None,
    saving: Saving | None = None,
    faults: Faults = PATIENT,
    sync: SyncSettings | None = None,
) -> Run:
    """A run's folder for a job of this many local workers, replicated if nothing else is said."""
    job = Job(
        name="test",
        train=Path(__file__),
        devices_per_node=workers,
        folder=folder,
        python=Path(sys.executable),
        check=False,  # tests/parallel/test_check.py has it, and it takes a fork of each training
    )
    plan = Plan(
        layout=layout or Layout(replicas=workers),
        saving=saving or Saving(every_steps=0),
        faults=faults,
        **({} if sync is None else {"sync": sync}),
    )
    return Run.create(folder, job, plan)


def go_on(run: Run, generation: int = 1, **changes: Any) -> None:
    """Let a run go on as this generation, with such changes of its plan."""
    plan = run.plan.model_copy(update=changes)
    run.write_plan(plan)
    update = {"first_generation": generation, "devices_per_node": plan.layout.workers}
    run.write_job(run.job.model_copy(update=update))


def _collect(ranks: list[tuple[ForkServerProcess, Connection]], deadline: float) -> list[Any]:
    results: dict[int, Any] = {}
    open_ends = {receiver: rank for rank, (_, receiver) in enumerate(ranks)}
    while open_ends:
        ready = wait(list(open_ends), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise RankFailed(f"ranks {sorted(open_ends.values())} did not end in time")
        for receiver in ready:
            assert isinstance(receiver, Connection)
            rank = open_ends.pop(receiver)
            try:
                succeeded, value = receiver.recv()
            except EOFError:
                raise RankFailed(
                    f"rank {rank} died without a word: {_end(ranks[rank][0])}"
                ) from None
            if not succeeded:
                raise RankFailed(f"rank {rank} raised:\n{value}")
            results[rank] = value
    return [results[rank] for rank in range(len(ranks))]


def _end(process: ForkServerProcess) -> str:
    process.join(5)
    return f"exit code {process.exitcode}"


def _rank_main(
    sender: Connection,
    folder: Path,
    rank: int,
    workers: int,
    kind: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    import torch

    os.environ |= {
        "PACELINE_RUN": str(folder),
        "PACELINE_RANK": str(rank),
        "PACELINE_WORKERS": str(workers),
    }
    torch.set_num_threads(1)
    faulthandler.enable()  # a crash in native code says where
    device_choice.use_in_rank(kind, workers)
    try:
        sender.send((True, function(*arguments)))
    except BaseException:
        sender.send((False, traceback.format_exc()))
    sender.close()
