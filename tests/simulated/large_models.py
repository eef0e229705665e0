"""A model of blocks that simulated devices cannot hold, and its training on them."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.train.trainer import Trainer
from train.trainings import recorded_losses


class Size(NamedTuple):
    """How large a model is; a block has 4 x width x width weights."""

    width: int
    blocks: int
    batch: int


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = values + self.down(torch.relu(self.up(values)))
        return changed


class Stack(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.blocks))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = block(values)
        return values


def training_of(size: Size, steps: int = 2, **changes: Any) -> paceline.Training:
    """A training without optimizer state."""
    values = torch.randn(4 * size.batch, size.width, generator=torch.Generator().manual_seed(3))
    settings: dict[str, Any] = {
        "model": lambda: Stack(size),
        "loss": F.mse_loss,
        "data": TensorDataset(values, values.roll(1, dims=1)),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1e-2),
        "batch": size.batch,
        "steps": steps,
    }
    return paceline.Training(**settings | changes)


class Trained(NamedTuple):
    """What a worker found."""

    losses: list[float]
    start_bytes: int
    """The device's peak until the first step."""
    step_bytes: int
    """The device's peak in the steps."""
    differ: list[str]
    """Weights before the first step that are not those of a plain model, to the bit."""


def train(
    size: Size, steps: int = 2, *, compare: bool = False, pretrained: Path | None = None
) -> Trained:
    """Train on this worker's device, and save."""
    training = training_of(size, steps, pretrained=pretrained)
    differ: list[str] = []
    with paceline.start(training) as trainer:
        start_bytes = _peak_bytes(trainer)
        if compare:
            torch.manual_seed(training.seed)
            plain = training.model().state_dict()
            weights = trainer._stepper.parallel_model.weights()
            differ = [name for name, each in weights if not torch.equal(each.cpu(), plain[name])]
        _forget_peak(trainer)
        for batch in trainer:
            trainer.step(batch)
            trainer.save()
        step_bytes = _peak_bytes(trainer)
    return Trained(recorded_losses()[-steps:], start_bytes, step_bytes, differ)


def _peak_bytes(trainer: Trainer) -> int:
    on_cpu = trainer.device.type == "cpu"
    return 0 if on_cpu else torch.accelerator.max_memory_allocated(trainer.device)


def _forget_peak(trainer: Trainer) -> None:
    if trainer.device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats(trainer.device)
