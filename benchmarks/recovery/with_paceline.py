"""The job with Paceline. What entered each step is in its own ledger."""

import os

from torch.nn import functional as F

import paceline
from benchmarks.recovery.job import STEPS, History, Paced, Points, optimizer
from benchmarks.recovery.sizes import BATCH


def training() -> None:
    given = paceline.Training(
        model=Paced,
        loss=F.cross_entropy,
        data=Points(),
        optimizer=optimizer,
        batch=BATCH,
        steps=STEPS,
        shuffle=False,
    )
    with paceline.start(given) as trainer:
        rank = int(os.environ.get("PACELINE_RANK") or os.environ["SLURM_PROCID"])
        # Who was started in the place of another has no rank of its own yet.
        history = History(rank if rank >= 0 else os.getpid())
        for batch in trainer:
            history.committed(trainer.step(batch).step, "see the ledger")
