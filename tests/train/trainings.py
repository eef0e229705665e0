"""Small trainings that tests run on several ranks."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Run, Steps, event_adapter

FEATURES, CLASSES = 12, 5


def classification(samples: int = 200, **changes: Any) -> paceline.Training:
    """A small classifier on random data that can be learned."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(samples, FEATURES, generator=generator)
    target = (inputs @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(dim=1)
    settings: dict[str, Any] = {
        "model": lambda: nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES)),
        "loss": F.cross_entropy,
        "data": TensorDataset(inputs, target),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.2, momentum=0.9),
        "batch": 32,
        "steps": 50,
    }
    return paceline.Training(**settings | changes)


def recorded_losses() -> list[float]:
    """The loss of every step, as this run's folder has it."""
    folder = run_folder()
    assert folder is not None
    losses: list[float] = []
    for file in sorted(Run(folder).events.iterdir()):
        for line in file.read_text().splitlines():
            event = event_adapter.validate_json(line)
            if isinstance(event, Steps):
                losses += event.loss
    return losses


def fit_and_read(changes: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Train; the loss of every step, and the final weights in a row."""
    with paceline.start(classification(**changes)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    weights = torch.cat([each.detach().flatten() for each in trainer.model.parameters()])
    return recorded_losses(), weights.tolist()
