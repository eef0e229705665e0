"""How many files and connections a worker may open, and how many its run needs."""

import resource

from paceline.specs import PacelineError

MOST_BY_GLOO = 512
"""Maximum workers whose collectives Gloo carries. It connects each pair of workers, and each worker
reads from worker 0's store the addresses that every other one has for it and for all others."""
_OWN_FILES = 256
"""Libraries, logs and data of the training, and the control plane, whose connections are few."""
_GLOO_GROUPS = 2
"""Groups of all workers in which each connects to every other: the engine's, and the replicas'."""


def allow_most_files() -> None:
    """Let this process open as many files as the system allows.

    Gloo keeps the connections of strangers open until their process group is closed: with the usual
    limit of 1024 files, few strangers could keep a worker from opening its own.
    """
    most = most_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_files() -> int:
    """Return the number of files that a process of this user may open at once."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def needed_files(workers: int, *, by_gloo: bool) -> int:
    """Return how many files a worker needs, whichever role it gets.

    The worker that leads a generation has the store, to which all others connect.
    """
    return _OWN_FILES + workers * (1 + _GLOO_GROUPS * by_gloo)


def enough_for(files: int) -> int:
    """Return the number of workers on accelerators for which this many files are enough."""
    return max(0, files - _OWN_FILES)


def check_connections(workers: int, *, by_gloo: bool) -> None:
    """Refuse a run whose workers could not open their connections, before they try."""
    if by_gloo and workers > MOST_BY_GLOO:
        raise PacelineError(
            f"{workers} workers communicate by Gloo, which connects each pair of them and reads"
            f" {_address_gigabytes(workers):.0f} GB of addresses from worker 0: Paceline allows"
            f" {MOST_BY_GLOO}",
            fix="use accelerators, whose collectives need no connection of each pair; or fewer"
            " workers, each with more of its node's cores",
        )
    needed, most = needed_files(workers, by_gloo=by_gloo), most_files()
    if needed > most:
        raise PacelineError(
            f"a worker of {workers} needs up to {needed:,} open files, and this node's hard limit"
            f" is {most:,}",
            fix=f"raise it to {needed:,} or more on all nodes: LimitNOFILE of slurmd's service,"
            " `ulimit -Hn` of the shell, or --ulimit nofile of the container",
        )


def _address_gigabytes(workers: int) -> float:
    """Computed: each worker reads from each other one 154 bytes, and 8 bytes for each worker."""
    return workers**2 * (154 + 8 * workers) / 1e9
