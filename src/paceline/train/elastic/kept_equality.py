"""Comparison of the objects that the user's loop keeps, which must be equal on all workers."""

import json

import torch

from paceline.comm.groups import Groups
from paceline.specs import PacelineError
from paceline.train.monitor.logged_rows import name_bits
from paceline.train.monitor.replica_check import digest
from paceline.train.state.kept_objects import KeptObjects


def check_kept_equal(kept: KeptObjects, groups: Groups) -> None:
    """Raise on all workers if a kept object differs between them. All workers call this."""
    if not kept.any_of_user:
        return
    values, tensors = kept.saved()
    content = int(digest(list(tensors.values()), groups.device)) if tensors else 0
    bits = torch.tensor(name_bits((json.dumps(values), str(content))), device=groups.device)
    if any(each not in (0, groups.placement.workers) for each in groups.sum(bits).tolist()):
        raise PacelineError(
            "the state of an object given to trainer.keep differs between workers, but a checkpoint"
            " holds worker 0's",
            fix="keep only what is equal on all workers, such as an average of their weights",
        )
