"""Parameter groups by name: biases without weight decay, a head with its own learning rate."""

from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import nn

import paceline
from layouts import models
from paceline.specs import Layout
from ranks import run_ranks
from train.trainings import CLASSES, FEATURES, classification
from trainings.comparison import (
    LAYOUTS,
    Trained,
    classified,
    killed_and_resumed,
    plain_loop,
    under_paceline,
)

STEPS = 10


class Named(nn.Module):
    """A classifier whose parts have names."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(x))
        return logits


def grouped(named: "list[tuple[str, nn.Parameter]]") -> torch.optim.Optimizer:
    """AdamW with one group for biases, one for the head's weight and one for the others."""

    def group(name: str) -> str:
        return "bias" if name.endswith("bias") else name.partition(".")[0]

    settings = {
        "bias": {"weight_decay": 0.0},
        "head": {"lr": 0.05},
        "body": {"weight_decay": 0.3},
    }
    return torch.optim.AdamW(
        [
            {"params": [each for name, each in named if group(name) == which]} | changes
            for which, changes in settings.items()
        ],
        lr=0.01,
    )


def training() -> paceline.Training:
    return classification(
        model=Named, optimizer=lambda parameters: grouped(list(parameters.named())), steps=STEPS
    )


@pytest.fixture(scope="module")
def plain() -> Trained:
    return plain_loop(training(), lambda model: grouped(list(model.named_parameters())), classified)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    under_paceline(training, LAYOUTS[layout], tmp_path).check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    killed_and_resumed(training, LAYOUTS["2 shards"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )


def names_given() -> list[str]:
    """Return the names that the optimizer's function gets on this worker, but in trials."""
    calls: list[list[str]] = []

    def optimizer(parameters: paceline.Parameters) -> torch.optim.Optimizer:
        calls.append([name for name, _ in parameters.named()])
        return torch.optim.SGD(parameters, lr=0.1)

    with paceline.start(models.training_of("gpt", optimizer=optimizer, steps=1)) as trainer:
        for batch in trainer:
            trainer.step(batch)
    return max(calls, key=len)  # a trial has few parameters


@pytest.mark.parametrize("layout", [Layout(tensor=2), Layout(pipeline=2)], ids=["tensor", "stages"])
def test_names_are_those_of_the_model_in_every_layout(layout: Layout, tmp_path: Path) -> None:
    whole = [name for name, _ in models.MODELS["gpt"]().named_parameters()]
    given = run_ranks(names_given, 2, tmp_path, layout=layout)
    assert set(chain(*given)) == set(whole)
    assert all(names == [name for name in whole if name in names] for names in given)
