"""The time in the queue, from what past jobs waited."""

from collections.abc import Sequence

import numpy as np

from paceline.schedulers.scheduler import PastWait
from paceline.specs.plans.estimate import QueueWait

FEWEST_JOBS = 10
"""Jobs below which a 90 % quantile says nothing."""
FACTORS = (2, 4)
"""How many times more or fewer nodes jobs may have had; the first that has enough jobs."""


def queue_wait(past: Sequence[PastWait], nodes: int, jobs: int) -> QueueWait | None:
    """Return how long a job on `nodes` nodes waits; None if too few past jobs were about as large.

    `jobs`: how many the training needs, one after the other; each waits.
    """
    for factor in FACTORS:
        waits = [each for each in past if nodes / factor <= each.nodes <= nodes * factor]
        if len(waits) >= FEWEST_JOBS:
            median, high = np.quantile([each.seconds for each in waits], [0.5, 0.9])
            return QueueWait(
                median_seconds=float(median),
                high_seconds=float(high),
                jobs=jobs,
                from_jobs=len(waits),
                fewest_nodes=min(each.nodes for each in waits),
                most_nodes=max(each.nodes for each in waits),
            )
    return None


def unknown_wait_remark(past: Sequence[PastWait], nodes: int) -> str:
    """Return why the time in the queue is not known."""
    return (
        f"the time in the queue is not known: of {len(past):,} jobs in the accounting, fewer than"
        f" {FEWEST_JOBS} had about {nodes:,} nodes"
    )
