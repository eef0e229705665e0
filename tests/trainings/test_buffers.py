"""Buffers that forward changes: running statistics of one's own, counters, a codebook."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline.parallel.sample_trial import try_samples
from paceline.specs import Layout, PacelineError
from ranks import RankFailed, run_ranks
from train.trainings import CLASSES, FEATURES, classification
from trainings.comparison import (
    LAYOUTS,
    Describe,
    Trained,
    killed_and_resumed,
    plain_steps,
    seeded_model,
    under_paceline,
)


class Centered(nn.Module):
    """Subtracts a running mean of its inputs, and counts samples and steps."""

    mean: torch.Tensor
    seen: torch.Tensor
    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.lerp_(inputs.mean(0), 0.1)
            self.seen = self.seen + len(inputs)  # assigned, not changed in place
            self.steps.data.add_(1)  # changed without a new version
        return self.layer(inputs - self.mean)  # type: ignore[no-any-return]


class Codebook(nn.Module):
    """Moves each vector of a codebook towards the mean of the rows nearest to it."""

    codes: torch.Tensor
    sizes: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(FEATURES, 4), nn.Linear(4, CLASSES)
        self.register_buffer("codes", torch.randn(6, 4))
        self.register_buffer("sizes", torch.ones(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = self.into(inputs)
        nearest = torch.cdist(rows, self.codes).argmin(1)
        if self.training:
            self._move(paceline.gather(rows.detach()), paceline.gather(nearest))
        return self.out(rows + (self.codes[nearest] - rows).detach())  # type: ignore[no-any-return]

    @torch.no_grad()
    def _move(self, rows: torch.Tensor, nearest: torch.Tensor) -> None:
        chosen = F.one_hot(nearest, len(self.codes)).to(rows.dtype)
        self.sizes.lerp_(chosen.sum(0), 0.1)
        self.codes.lerp_((chosen.T @ rows) / self.sizes.clamp(min=1)[:, None], 0.1)


def centered(**changes: Any) -> paceline.Training:
    settings: dict[str, Any] = {"steps": 12, "buffers": {"mean": "average", "se*": "sum"}}
    return classification(91, model=Centered, **settings | changes)


def codebook() -> paceline.Training:
    return classification(91, model=Codebook, steps=12, buffers="worker0")


@pytest.fixture(scope="module")
def plain() -> dict[Describe, Trained]:
    return {describe: in_plain_pytorch(describe()) for describe in (centered, codebook)}


def in_plain_pytorch(training: paceline.Training) -> Trained:
    losses = []
    model = seeded_model(training)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for samples in plain_steps(training):
        inputs, target = (torch.stack(column) for column in zip(*samples, strict=True))
        loss = F.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return Trained.of(losses, model)


@pytest.mark.parametrize(
    "layout", [*LAYOUTS, pytest.param("3 replicas", marks=pytest.mark.nightly)]
)
def test_a_codebook_equals_a_plain_loops(
    layout: str, plain: dict[Describe, Trained], tmp_path: Path
) -> None:
    chosen = LAYOUTS.get(layout, Layout(replicas=3))
    under_paceline(codebook, chosen, tmp_path).check_equals(plain[codebook])


@pytest.mark.parametrize(
    "layout", [pytest.param("1 worker", marks=pytest.mark.nightly), "2 shards", "3 replicas"]
)
def test_statistics_and_counters_equal_a_plain_loops(
    layout: str, plain: dict[Describe, Trained], tmp_path: Path
) -> None:
    """A forward subtracts the mean that it has just changed by its own samples, so losses differ;
    the buffers do not."""
    chosen = LAYOUTS.get(layout, Layout(replicas=3))
    trained, expected = under_paceline(centered, chosen, tmp_path), plain[centered]
    for name in ("mean", "seen", "steps"):
        assert trained.weights[name] == pytest.approx(expected.weights[name], rel=1e-5, abs=1e-6)
    assert trained.losses == pytest.approx(expected.losses, rel=0.05)


def test_it_resumes_after_a_kill(plain: dict[Describe, Trained], tmp_path: Path) -> None:
    killed_and_resumed(codebook, LAYOUTS["2 replicas"], tmp_path, killed_after=5).check_equals(
        plain[codebook].after(4)
    )


def tried_losses() -> list[int]:
    """Return the calls that a loss with a closure has counted."""
    calls: list[int] = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls.append(len(target))
        return output.sum()

    counted = classification(loss=loss)
    assert try_samples(counted, counted.model(), torch.device("cpu")).branches == frozenset()
    return calls


def test_a_trial_before_training_leaves_no_traces() -> None:
    model = Centered()
    trial = try_samples(centered(), model, torch.device("cpu"))
    assert trial.steady == {"steps"}
    assert (int(model.steps), int(model.seen)) == (0, 0)
    assert all(each.grad is None for each in model.parameters())
    assert tried_losses() == []


def fit_without_rules() -> None:
    paceline.fit(centered(buffers=None))


def test_without_a_rule_they_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="forward changes the buffers mean, seen, each worker by"):
        run_ranks(fit_without_rules, 2, tmp_path)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(PacelineError, match="has the rule 'mean'"):
        centered(buffers={"mean": "mean"})
