"""The result of a step on one worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class StepOutput:
    """The result of a step on this worker."""

    step: int
    """Step number, from 1."""
    loss: torch.Tensor
    """Mean loss over the local batch, detached; reading it waits for the device. NaN on workers
    before the last pipeline stage. With phases: that of the first phase due in every step."""
    losses: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """With phases: the same for each phase that the step took."""
