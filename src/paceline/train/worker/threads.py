"""CPU threads of a worker."""

import os

from paceline.specs import Placement


def limit_threads(placement: Placement, cpus_per_worker: int | None) -> None:
    """Limit this worker's threads to its part of the CPU cores granted by the scheduler.

    Call this before torch is loaded: its thread pool and its BLAS read the variable once.
    """
    allowed = len(os.sched_getaffinity(0))
    if cpus_per_worker is None:
        threads = allowed // placement.local_workers
    elif allowed <= cpus_per_worker:  # the scheduler has bound each worker to its own cores
        threads = allowed
    else:
        threads = min(allowed // placement.local_workers, cpus_per_worker)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
