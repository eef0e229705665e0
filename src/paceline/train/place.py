"""Where this process stands among the workers. No torch: it is read before torch is loaded."""

import math
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from paceline.recover.death import born
from paceline.specs import JOINS, Layout, PacelineError, Roster

GONE = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")
"""What an error of an exchange says when the other end is gone."""


@dataclass(frozen=True)
class Place:
    """One worker's place in a run."""

    rank: int = 0
    workers: int = 1
    local_rank: int = 0
    """Its number on its node."""
    local_workers: int = 1
    node: str = ""
    generation: int = 0
    """How often the workers of the run have changed before."""
    roster: Roster | None = None
    """Who the workers are, once they are not those that the launcher has started."""

    @classmethod
    def in_roster(cls, roster: Roster, name: str) -> "Place":
        """A member's place among those that train."""
        training = roster.model_copy(update={"members": roster.members[: roster.training]})
        rank = roster.names.index(name)
        node = roster.members[rank].node
        here = training.nodes.get(node, [])
        return cls(
            rank=rank,
            workers=roster.training,
            local_rank=here.index(rank) if rank in here else 0,
            local_workers=len(here),
            node=node,
            generation=roster.generation,
            roster=training,
        )

    @property
    def joins(self) -> bool:
        """Whether this worker was started when the others had met already, or to stand by."""
        return self.rank == JOINS

    @property
    def leads_node(self) -> bool:
        """Whether this worker writes its node's events."""
        return self.local_rank == 0

    @property
    def nodes(self) -> int:
        """Nodes in the run."""
        if self.roster is not None:
            return len(self.roster.nodes)
        return self.workers // self.local_workers

    @property
    def node_ranks(self) -> list[int]:
        """The workers on this node."""
        if self.roster is not None:
            return self.roster.nodes[self.node]
        first = self.rank - self.local_rank
        return list(range(first, first + self.local_workers))


def run_folder() -> Path | None:
    """The folder of the run that this process is a worker of; None for `python train.py`."""
    folder = os.environ.get("PACELINE_RUN")
    return Path(folder) if folder else None


def place(first_generation: int = 0) -> Place:
    """This process's place, from what the launcher put into its environment.

    `first_generation`: how often the run was started before this job.
    """
    environment = os.environ
    if run_folder() is None:
        _refuse_bare_srun()
        return Place(node=socket.gethostname())
    if "PACELINE_RANK" in environment:
        workers = int(environment["PACELINE_WORKERS"])
        rank = int(environment["PACELINE_RANK"])
        device = int(environment.get("PACELINE_DEVICE", rank))
        return Place(rank, workers, device, workers, socket.gethostname(), first_generation)
    if "SLURM_PROCID" in environment:
        tasks, rank = int(environment["SLURM_NTASKS"]), int(environment["SLURM_PROCID"])
        workers = int(environment.get("PACELINE_WORKERS", tasks))
        return Place(
            rank=JOINS if rank >= workers or "PACELINE_JOINS" in environment else rank,
            workers=workers,
            local_rank=int(environment["SLURM_LOCALID"]),
            local_workers=tasks // int(environment["SLURM_NNODES"]),
            node=environment["SLURMD_NODENAME"],
            generation=int(environment.get("PACELINE_GENERATION", first_generation)),
        )
    raise PacelineError(
        "this worker was started by neither a launcher of Paceline nor srun",
        fix="start it with `paceline run TRAIN` or `paceline submit TRAIN`",
    )


def _refuse_bare_srun() -> None:
    tasks = int(os.environ.get("SLURM_NTASKS", "1"))
    started_by_srun = os.environ.get("SLURM_STEP_ID", "").isdigit()
    if started_by_srun and tasks > 1:
        raise PacelineError(
            f"srun started {tasks} copies of this script, which would each train the whole model"
            " alone",
            fix="use `paceline submit TRAIN --nodes N`; it writes the srun line for you",
        )


def limit_threads(place: Place, cpus_per_worker: int | None) -> None:
    """Have this worker compute on its share of the cores it may use, within what Slurm granted.

    Before torch is loaded: its thread pool and the BLAS beneath it read this once.
    """
    share = max(1, len(os.sched_getaffinity(0)) // place.local_workers)
    threads = share if cpus_per_worker is None else min(share, cpus_per_worker)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def speeds_of_data_workers(place: Place, layout: Layout) -> tuple[float, ...] | None:
    """A plan's speeds, given per node or per worker, as one for each part of the batch.

    Workers that hold one copy together are as fast as the slowest of them.
    """
    speeds = layout.speeds
    if speeds is None:
        return None
    if place.roster is not None:
        return None  # they are told for workers that are no longer the same
    if len(speeds) == place.nodes:
        speeds = tuple(speed for speed in speeds for _ in range(place.local_workers))
    if len(speeds) != place.workers:
        raise PacelineError(
            f"the plan has {len(speeds)} speeds, but the run has {place.nodes} nodes and"
            f" {place.workers} workers",
            fix="give one speed per node or one per worker, or leave speeds out",
        )
    slowest = [math.inf] * layout.data_workers
    for rank, speed in enumerate(speeds):
        part = layout.data_rank(rank)
        slowest[part] = min(slowest[part], speed)
    return tuple(slowest)


def age_seconds() -> float:
    """How long ago this process was started, by the kernel's clock since boot."""
    start_ticks = born(os.getpid())
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
