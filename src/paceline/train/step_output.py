"""What a step gives."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StepOutput:
    """What a step gave on this worker."""

    step: int
    """Steps count from 1."""
    loss: torch.Tensor
    """This worker's mean over its share, without gradient; reading it waits for the device. Not a
    number on workers before the last stage of a pipeline."""
