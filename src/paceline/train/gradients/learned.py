"""What a share of a batch gave."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Learned:
    """What a share of a batch gave beside its gradients."""

    loss: torch.Tensor
    """The mean over the share."""
    losses: torch.Tensor
    """The same; or, where a batch has a fixed number of parts, the mean of each part of the batch,
    with zeros for those of other workers."""
    weights: float | torch.Tensor
    """What these weigh in the mean over the batch."""
