"""CPU threads of a worker."""

import os

from paceline.specs import Placement


def limit_threads(placement: Placement, cpus_per_worker: int | None) -> None:
    """Limit this worker to its share of the CPU cores that the scheduler granted.

    Before torch is loaded: its thread pool and the BLAS beneath it read this once.
    """
    share = max(1, len(os.sched_getaffinity(0)) // placement.local_workers)
    threads = share if cpus_per_worker is None else min(share, cpus_per_worker)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
