"""A worker's placement, read from what started it. No torch: it is read before torch is loaded."""

import os
import socket
from pathlib import Path

from paceline.specs import JOINS, PacelineError, Placement


def run_folder() -> Path | None:
    """The folder of the run that this process is a worker of; None for `python train.py`."""
    folder = os.environ.get("PACELINE_RUN")
    return Path(folder) if folder else None


def placement(first_generation: int = 0) -> Placement:
    """This process's place, from what the launcher put into its environment.

    `first_generation`: how often the run was started before this job.
    """
    environment = os.environ
    if run_folder() is None:
        _refuse_bare_srun()
        return Placement(node=socket.gethostname())
    if "PACELINE_RANK" in environment:
        workers = int(environment["PACELINE_WORKERS"])
        rank = int(environment["PACELINE_RANK"])
        device = int(environment.get("PACELINE_DEVICE", rank))
        return Placement(rank, workers, device, workers, socket.gethostname(), first_generation)
    if "SLURM_PROCID" in environment:
        tasks, rank = int(environment["SLURM_NTASKS"]), int(environment["SLURM_PROCID"])
        workers = int(environment.get("PACELINE_WORKERS", tasks))
        return Placement(
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
