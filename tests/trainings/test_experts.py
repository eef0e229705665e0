"""Parameters that steps leave unused: experts, branches in turn, and some that are never used."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.specs import Layout
from ranks import RankFailed, run_ranks
from train.trainings import CLASSES, FEATURES, classification
from trainings.comparison import (
    LAYOUTS,
    Describe,
    Trained,
    classified,
    killed_and_resumed,
    plain_loop,
    skip_if_torch_cannot_shard_branches,
    under_paceline,
)

WIDTH = 8
DIVIDED = LAYOUTS | {
    "3 replicas": Layout(replicas=3),
    "2 replicas of 2 shards": Layout(replicas=2, shards=2),
}
EACH_COMMIT = [
    pytest.param(name, marks=[pytest.mark.nightly] if name == "2 replicas" else [])
    for name in DIVIDED
]
"""Three replicas divide a batch as two do, and unequally."""


class Expert(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


class Mixture(nn.Module):
    """Sends each row to the expert that a router prefers; calls only experts that get rows."""

    def __init__(self, experts: int = 6) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.router = nn.Linear(WIDTH, experts)
        self.experts = nn.ModuleList(Expert() for _ in range(experts))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = self.into(inputs)
        weight, chosen = self.router(rows).softmax(-1).max(-1)
        mixed = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            if (mine := chosen == number).any():
                mixed[mine] = expert(rows[mine])
        return self.out(rows + mixed * weight[:, None])  # type: ignore[no-any-return]


class Switching(nn.Module):
    """Uses its branches in turn, a spare layer never, and one branch only for some samples."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.turns = nn.ModuleList(nn.Linear(FEATURES, CLASSES) for _ in range(3))
        self.seldom, self.spare = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.turns[int(self.calls) % 3](inputs)
        if self.training:
            self.calls += 1
        rows = inputs[:, 0] > 1.2
        if rows.any():
            output = output.masked_scatter(rows[:, None], self.seldom(inputs[rows]))
        return output


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Counts the steps of each parameter: those without a gradient are not counted."""
    return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)


def few_per_batch(model: type[nn.Module]) -> paceline.Training:
    """Batches of 5 rows, so that many experts get none."""
    return classification(48, model=model, optimizer=adam, batch=5, steps=16, clip=1.0)


def mixture() -> paceline.Training:
    return few_per_batch(Mixture)


def switching() -> paceline.Training:
    return few_per_batch(Switching)


@pytest.fixture(scope="module")
def plain() -> dict[Describe, Trained]:
    return {describe: in_plain_pytorch(describe()) for describe in (mixture, switching)}


def in_plain_pytorch(training: paceline.Training) -> Trained:
    return plain_loop(training, lambda model: adam(model.parameters()), classified, clip=1.0)


@pytest.mark.parametrize("layout", EACH_COMMIT)
@pytest.mark.parametrize("describe", [mixture, switching], ids=["experts", "branches"])
def test_it_equals_a_plain_loop(
    describe: Describe, layout: str, plain: dict[Describe, Trained], tmp_path: Path
) -> None:
    skip_if_torch_cannot_shard_branches(DIVIDED[layout])
    trained = under_paceline(describe, DIVIDED[layout], tmp_path)
    trained.check_equals(plain[describe], rel=1e-4)


@pytest.mark.nightly  # no state of its own: test_buffers.py, test_closures.py and others have one
def test_it_resumes_after_a_kill(plain: dict[Describe, Trained], tmp_path: Path) -> None:
    skip_if_torch_cannot_shard_branches(LAYOUTS["2 shards"])
    killed_and_resumed(mixture, LAYOUTS["2 shards"], tmp_path, killed_after=5).check_equals(
        plain[mixture].after(4), rel=1e-4
    )


def fit_mixture() -> None:
    paceline.fit(mixture())


def test_several_pipelines_are_refused(tmp_path: Path) -> None:
    layout = Layout(replicas=2, pipeline=2)
    with pytest.raises(RankFailed, match=r"some samples leave experts.* unused"):
        run_ranks(fit_mixture, 4, tmp_path, layout=layout)


class Dropping(nn.Module):
    """Drops a layer, but first in a step that no trial sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.out = nn.Linear(FEATURES, CLASSES)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        rows = self.layers[0](inputs)
        rows = self.layers[1](rows) if self.calls != 4 else rows
        return self.out(rows)  # type: ignore[no-any-return]


def fit_dropping(branches: str | None) -> int:
    return paceline.fit(dataclasses.replace(few_per_batch(Dropping), branches=branches)).steps


def test_a_parameter_that_no_trial_found_is_named(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=r'give Training\(branches="layers.1.\*"\)'):
        run_ranks(fit_dropping, 2, tmp_path / "refused", None)
    assert run_ranks(fit_dropping, 2, tmp_path / "named", "layers.1.*") == [16, 16]
