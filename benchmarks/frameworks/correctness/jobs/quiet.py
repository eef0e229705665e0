"""What Lightning's Trainer is told because of the comparison, and not because of the training."""

import os
from typing import Any

from torch.utils.data import Dataset, DistributedSampler

from benchmarks.frameworks.correctness.jobs.given import WORKERS

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
"""What it does by itself, and the others do not."""


def in_order(data: Dataset[Any]) -> DistributedSampler[Any]:
    """Return the sampler that it would use, without shuffling: it shuffles every training."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return DistributedSampler(data, WORKERS, rank, shuffle=False)
