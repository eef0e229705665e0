"""A worker's place in a run's pods, from its environment."""

import os
import socket

from paceline.schedulers.scheduler import Task

JOB_VARIABLE, NAMESPACE_VARIABLE = "PACELINE_POD_JOB", "PACELINE_POD_NAMESPACE"
"""Variables of a pod with the name and namespace of its Job."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Variable of a pod with its index, set by Kubernetes."""
PODS_VARIABLE, WORKERS_VARIABLE, LOCAL_RANK_VARIABLE = (
    "PACELINE_PODS",
    "PACELINE_POD_WORKERS",
    "PACELINE_POD_LOCAL_RANK",
)
"""Variables of a worker with the number of pods, of workers per pod, and its number in its pod."""


def own_job() -> str | None:
    """Return `NAMESPACE/NAME` of the Job that this process is part of."""
    name = os.environ.get(JOB_VARIABLE)
    return f"{os.environ.get(NAMESPACE_VARIABLE, '')}/{name}" if name else None


def own_task() -> Task | None:
    """Return this process as one of the workers of its pod; None if it is none."""
    environment = os.environ
    if LOCAL_RANK_VARIABLE not in environment:
        return None
    local_rank, workers = int(environment[LOCAL_RANK_VARIABLE]), int(environment[WORKERS_VARIABLE])
    pods = int(environment[PODS_VARIABLE])
    return Task(
        rank=int(environment[INDEX_VARIABLE]) * workers + local_rank,
        tasks=pods * workers,
        local_rank=local_rank,
        nodes=pods,
        node=socket.gethostname(),
    )
