"""A gradient that is not finite is not taken: computed again, or the end."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paceline
from paceline.specs import Layout, PacelineError, SyncSettings
from ranks import RankFailed, run_ranks
from train.trainings import CLASSES, FEATURES, classification
from train.watched import found, rank, watched_run

STEP = 7


class Normalised(nn.Sequential):
    """A classifier with running statistics and random numbers."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(FEATURES, 32),
            nn.BatchNorm1d(32),
            nn.Dropout(0.2),
            nn.Linear(32, CLASSES),
        )


def train(where: str, times: int, changes: dict[str, Any]) -> list[float]:
    """Train with something that is not finite in a step of worker 1, so many times; the weights
    and the running statistics afterwards."""
    left = times if rank() == 1 else 0
    step = 0

    def spoiled(value: torch.Tensor) -> torch.Tensor:
        nonlocal left
        if step != STEP or not left:
            return value
        left -= 1
        return value * float("nan")

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if where == "gradient" and output.requires_grad:
            output.register_hook(spoiled)  # type: ignore[no-untyped-call]
        found = F.cross_entropy(output, target)
        return spoiled(found) if where == "loss" else found

    training = classification(model=Normalised, loss=loss, steps=20, **changes)
    with paceline.start(training) as trainer:
        model = trainer.model
        if where == "input":
            model.register_forward_pre_hook(lambda _, inputs: (spoiled(inputs[0]),))
        for batch in trainer:
            step += 1
            trainer.step(batch)
    kept = [*model.parameters(), *model.buffers()]
    kept = [each.to_local() if hasattr(each, "to_local") else each for each in kept]
    return torch.cat([each.detach().flatten().double() for each in kept]).tolist()


REPLICAS = Layout(replicas=2, batch_norm="local")
SHARDS = Layout(shards=2, batch_norm="local")


@pytest.mark.parametrize(
    ("where", "layout", "sync", "changes"),
    [
        ("input", REPLICAS, "allreduce", {}),
        ("loss", SHARDS, "allreduce", {"clip": 1.0}),
        pytest.param("loss", REPLICAS, "allreduce", {"clip": 1.0}, marks=pytest.mark.nightly),
        pytest.param("gradient", REPLICAS, "allreduce", {}, marks=pytest.mark.nightly),
        pytest.param("loss", REPLICAS, "local:every=5", {}, marks=pytest.mark.nightly),
    ],
    ids=["input", "shards, clipped", "loss, clipped", "gradient", "replicas that step apart"],
)
def test_what_is_finite_when_computed_again_leaves_no_trace(
    tmp_path: Path, where: str, layout: Layout, sync: str, changes: dict[str, Any]
) -> None:
    runs = [
        watched_run(tmp_path / name, layout, SyncSettings.parse(sync))
        for name in ("undisturbed", "once")
    ]
    undisturbed, once = (
        run_ranks(train, 2, tmp_path, where, times, changes, run=run)
        for times, run in enumerate(runs)
    )
    assert once == undisturbed
    assert found(runs[0]) == []
    (event,) = found(runs[1])
    assert (event.kind, event.step, event.what) == ("refused", STEP, "not finite")
    assert event.ranks == ([] if where == "gradient" else [1])
    assert "finite when the step was repeated" in event.message


@pytest.mark.parametrize(
    ("where", "layout", "changes", "message"),
    [
        ("loss", REPLICAS, {}, f"the loss became nan at step {STEP} on worker 1"),
        ("gradient", REPLICAS, {}, f"the gradient became nan at step {STEP} on worker 1"),
        ("loss", SHARDS, {}, f"the loss became nan at step {STEP} on worker 1"),
    ],
    ids=["loss", "gradient", "shards, which do not look"],
)
def test_what_is_not_finite_again_ends_the_training(
    tmp_path: Path, where: str, layout: Layout, changes: dict[str, Any], message: str
) -> None:
    run = watched_run(tmp_path, layout)
    with pytest.raises(RankFailed, match=message) as error:
        run_ranks(train, 2, tmp_path, where, 99, changes, run=run)
    assert "lower the learning rate" in str(error.value)
    assert found(run) == []


def test_one_worker_alone() -> None:
    bad = [1.0, float("nan"), 1.0, float("inf"), float("inf")]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target) * bad.pop(0)

    # The second step is computed twice, the third ends it.
    with pytest.raises(PacelineError, match=r"the loss became inf at step 3 \(the loss was \d"):
        paceline.fit(classification(loss=loss))
    assert not bad


def test_large_and_sparse_gradients_are_finite() -> None:
    """Their norm may not be a number that fits, and is none of a dense tensor."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output.mean() * 1e30 + 0 * target.sum()

    training = classification(
        model=lambda: nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, CLASSES)),
        data=torch.utils.data.TensorDataset(torch.arange(64) % 9, torch.zeros(64)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-30),
        loss=loss,
        steps=2,
    )
    assert paceline.fit(training).steps == 2


@pytest.mark.parametrize("spoiled", ["single", "doubled", "complexed"])
def test_gradients_of_all_types_are_checked(spoiled: str) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.single = nn.Parameter(torch.ones(1))
            self.doubled = nn.Parameter(torch.ones(1, dtype=torch.float64))
            self.complexed = nn.Parameter(torch.ones(1, dtype=torch.complex64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            each: torch.Tensor = getattr(self, spoiled)
            each.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
            return inputs.sum() * sum(part.abs().sum() for part in self.parameters())

    training = classification(model=Mixed, loss=lambda output, target: output.mean(), steps=2)
    with pytest.raises(PacelineError, match="the gradient became nan at step 1"):
        paceline.fit(training)
