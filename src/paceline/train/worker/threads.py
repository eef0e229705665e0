"""CPU threads of a worker."""

import os

from paceline.specs import Placement


def limit_threads(placement: Placement, cpus_per_worker: int | None) -> None:
    """Limit this worker's threads to its part of the CPU cores granted by the scheduler.

    Call this before torch is loaded: its thread pool and its BLAS read the variable once.
    """
    share = max(1, len(os.sched_getaffinity(0)) // placement.local_workers)
    threads = share if cpus_per_worker is None else min(share, cpus_per_worker)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
