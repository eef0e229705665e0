"""A worker's placement, from its environment. No torch: workers read it before they load torch."""

import os
import socket
from pathlib import Path

from paceline.cluster.visible_devices import OWN_DEVICE_VARIABLE
from paceline.schedulers.scheduler import SCHEDULERS, Scheduler, Task
from paceline.specs import JOINS, PacelineError, Placement


def run_folder() -> Path | None:
    """Return the run folder of this worker process; None for `python train.py`."""
    folder = os.environ.get("PACELINE_RUN")
    return Path(folder) if folder else None


def placement(first_generation: int = 0) -> Placement:
    """Return this worker's placement: from the local launcher's variables, or the scheduler's.

    `first_generation`: the generation in which this job starts.
    """
    environment = os.environ
    if run_folder() is None:
        _refuse_bare_tasks()
        return Placement(node=socket.gethostname())
    if "PACELINE_RANK" in environment:
        workers = int(environment["PACELINE_WORKERS"])
        rank = int(environment["PACELINE_RANK"])
        device = int(environment.get("PACELINE_DEVICE", rank))
        return Placement(
            rank=rank,
            workers=workers,
            local_rank=device,
            local_workers=workers,
            node=socket.gethostname(),
            generation=first_generation,
            device_bound=OWN_DEVICE_VARIABLE in environment,
        )
    found = current_task()
    if found is None:
        raise PacelineError(
            "this worker was started neither by Paceline's local launcher nor by a scheduler",
            fix="start it with `paceline run TRAIN` or `paceline submit TRAIN`",
        )
    scheduler, task = found
    _check_distribution(scheduler, task)
    workers = int(environment.get("PACELINE_WORKERS", task.tasks))
    return Placement(
        rank=JOINS if task.rank >= workers or "PACELINE_JOINS" in environment else task.rank,
        workers=workers,
        local_rank=task.local_rank,
        local_workers=task.tasks // task.nodes,
        node=task.node,
        generation=int(environment.get("PACELINE_GENERATION", first_generation)),
        device_bound=task.device_bound or OWN_DEVICE_VARIABLE in environment,
        node_memory_bytes=task.memory_bytes,
    )


def current_task() -> tuple[Scheduler, Task] | None:
    """Return the scheduler that started this process, and its task; None for other processes."""
    for scheduler in SCHEDULERS:
        if (task := scheduler.task()) is not None:
            return scheduler, task
    return None


def current_job() -> tuple[Scheduler, str] | None:
    """Return the scheduler and the ID of the job that this process is part of."""
    for scheduler in SCHEDULERS:
        if (job_id := scheduler.own_job()) is not None:
            return scheduler, job_id
    return None


def is_preempted() -> bool:
    """Whether the scheduler takes this job's nodes for another job.

    The signal does not show this: preemption and a user's `kill` send the same one.
    """
    found = current_job()
    try:
        return found is not None and found[0].is_preempted(found[1])
    except (PacelineError, ValueError):
        return False


def _check_distribution(scheduler: Scheduler, task: Task) -> None:
    """Refuse tasks of which a node has more than another, or whose ranks are not consecutive.

    A worker derives from its rank which workers are on its node, and where it finds them.
    """
    each, rest = divmod(task.tasks, task.nodes)
    if rest or task.local_rank != task.rank % each:
        raise PacelineError(
            f"{scheduler.title} started task {task.rank} of {task.tasks} as number"
            f" {task.local_rank} of {task.node}, but each of {task.nodes} nodes needs an equal"
            " number of tasks, with consecutive ranks",
            fix="do not change how the job's script distributes its tasks: in equal blocks",
        )


def _refuse_bare_tasks() -> None:
    found = current_task()
    if found is not None and found[1].tasks > 1:
        scheduler, task = found
        raise PacelineError(
            f"{scheduler.title} started {task.tasks} copies of this script, each of which would"
            " train the whole model alone",
            fix="use `paceline submit TRAIN --nodes N`; it writes the batch script for you",
        )
