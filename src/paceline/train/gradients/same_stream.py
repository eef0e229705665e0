"""Check that all workers read the same stream, since each takes its own slice of it."""

import torch

from paceline.comm.groups import Groups
from paceline.data.loader import Batch
from paceline.specs import PacelineError


def check_same_stream(batch: Batch, groups: Groups) -> None:
    """Raise if workers have read different samples. All call this together, once per generation."""
    mine, workers = batch.fingerprint or 0, groups.placement.workers
    total = groups.sum(torch.tensor(mine, dtype=torch.int64, device=groups.device))
    if int(total) != mine * workers:
        raise PacelineError(
            f"the {workers} workers read different samples from the stream, but each takes its"
            " slice of one common stream",
            fix="let the stream yield the same samples on every worker: shuffle with a fixed seed,"
            " and do not split it by worker or node, which Paceline does",
        )
