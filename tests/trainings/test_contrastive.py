"""Losses over the whole batch, through `paceline.gather`: CLIP and SimCLR."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.data.batches import Batches
from paceline.data.loader import Batch
from paceline.data.order import Sequential
from paceline.parallel.step.whole_batch import WholeBatch, gathering
from paceline.specs import Layout, PacelineError
from ranks import RankFailed, run_ranks
from trainings.comparison import (
    LAYOUTS,
    Describe,
    Trained,
    killed_and_resumed,
    plain_loop,
    stacked,
    under_paceline,
)

SAMPLES, FEATURES, WIDTH = 28, 10, 6
DIVIDED = LAYOUTS | {
    "3 replicas": Layout(replicas=3),
    "2 replicas of 2 slices": Layout(replicas=2, tensor=2),
}


def seen_twice(samples: int = SAMPLES) -> "TensorDataset":
    """Pairs of views of the same thing, and the number of each."""
    generator = torch.Generator().manual_seed(3)
    things = torch.randn(samples, FEATURES, generator=generator)
    views = [things + 0.3 * torch.randn(things.shape, generator=generator) for _ in range(2)]
    return TensorDataset(*views, torch.arange(samples))


def inputs_and_number(batch: Any) -> tuple[Any, Any]:
    first, second, number = batch
    return (first, second), number


def tower() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, WIDTH))


class Clip(nn.Module):
    """Two towers, and a temperature that the loss uses after it has gathered the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = tower(), tower()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image, text = self.image(image), self.text(text)
        return F.normalize(image, dim=-1), F.normalize(text, dim=-1), self.scale.exp()


def clip_loss(output: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
    """Every worker computes the loss of the whole batch."""
    del target
    image, text, scale = output
    logits = scale * paceline.gather(image) @ paceline.gather(text).T
    pairs = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2


class Siamese(nn.Module):
    """The same tower for both views."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = tower()

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.normalize(self.tower(first), dim=-1), F.normalize(self.tower(second), dim=-1)


def simclr_loss(output: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
    """Each worker compares its own rows with all others: a mean over its own rows."""
    every, numbers = [paceline.gather(view) for view in output], paceline.gather(target)
    own_views = torch.cat([2 * target, 2 * target + 1])
    all_views = torch.cat([2 * numbers, 2 * numbers + 1])
    logits = torch.cat(output) @ torch.cat(every).T / 0.2
    logits = logits.masked_fill(own_views[:, None] == all_views, -torch.inf)
    partner = (own_views[:, None] ^ 1) == all_views
    return F.cross_entropy(logits, partner.float().argmax(1))


def contrastive(model: type[nn.Module], loss: Any, **changes: Any) -> paceline.Training:
    """Batches of 13 divide over no number of workers; an epoch's last batch has two samples."""
    settings: dict[str, Any] = {
        "model": model,
        "loss": loss,
        "data": seen_twice(),
        "split": inputs_and_number,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
        "batch": 13,
        "steps": 12,
    }
    return paceline.Training(**settings | changes)


def clip() -> paceline.Training:
    return contrastive(Clip, clip_loss)


def simclr() -> paceline.Training:
    return contrastive(Siamese, simclr_loss)


@pytest.fixture(scope="module")
def plain() -> dict[Describe, Trained]:
    return {describe: in_plain_pytorch(describe()) for describe in (clip, simclr)}


def in_plain_pytorch(training: paceline.Training) -> Trained:
    def loss_of(model: nn.Module, samples: list[Any]) -> torch.Tensor:
        first, second, number = stacked(samples)
        return training.loss(model(first, second), number)

    return plain_loop(
        training, lambda model: torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), loss_of
    )


def nightly(name: str, layout: str) -> bool:
    """Three replicas divide a batch as two do, and unequally: one layout says most for SimCLR."""
    return layout == "2 replicas" or (name == "SimCLR" and layout != "3 replicas")


@pytest.mark.parametrize(
    ("describe", "layout"),
    [
        pytest.param(
            describe,
            layout,
            marks=[pytest.mark.nightly] if nightly(name, layout) else [],
            id=f"{name}-{layout}",
        )
        for name, describe in (("CLIP", clip), ("SimCLR", simclr))
        for layout in DIVIDED
    ],
)
def test_it_equals_a_plain_loop(
    describe: Describe, layout: str, plain: dict[Describe, Trained], tmp_path: Path
) -> None:
    expected = plain[describe]
    if DIVIDED[layout].tensor > 1:  # this worker holds a slice of each weight
        trained = under_paceline(describe, DIVIDED[layout], tmp_path)
        assert trained.losses == pytest.approx(expected.losses, rel=1e-5)
        return
    under_paceline(describe, DIVIDED[layout], tmp_path).check_equals(expected)


@pytest.mark.nightly  # no state of its own: test_buffers.py, test_closures.py and others have one
def test_it_resumes_after_a_kill(plain: dict[Describe, Trained], tmp_path: Path) -> None:
    killed_and_resumed(clip, Layout(replicas=3), tmp_path, killed_after=5).check_equals(
        plain[clip].after(4)
    )


def gathered_rows(output: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
    del output
    return torch.tensor(float(len(paceline.gather(target))))


def evaluated() -> tuple[float, float]:
    with paceline.start(clip()) as trainer:
        found = trainer.evaluate(seen_twice(), {"rows": gathered_rows})
        for batch in trainer:
            trainer.step(batch)
    return found.loss, found.metrics["rows"]


def test_an_evaluation_sees_the_whole_batch(tmp_path: Path) -> None:
    (alone,) = run_ranks(evaluated, 1, tmp_path / "1")
    for found in run_ranks(evaluated, 3, tmp_path / "3"):
        assert found == pytest.approx(alone, rel=1e-6)


def of_both_views(output: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
    del target
    return paceline.gather(torch.cat(output[:2])).sum()


def wrong_rows() -> None:
    paceline.fit(contrastive(Clip, of_both_views))


def train_clip() -> None:
    paceline.fit(clip())


class ScalarClip(Clip):
    """A temperature without dimensions, as CLIP's own has none."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))


def train_with_scalar() -> None:
    paceline.fit(contrastive(ScalarClip, clip_loss))


def test_a_scalar_parameter_cannot_be_sharded(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="scale: a parameter without dimensions"):
        run_ranks(train_with_scalar, 2, tmp_path, layout=Layout(shards=2))


@pytest.mark.parametrize(
    ("train", "layout", "said"),
    [
        (train_clip, Layout(replicas=2, micro_batch=4), "in a step of 2 micro-batches"),
        (train_clip, Layout(micro_batch=4), "in a step of 4 micro-batches"),
        (wrong_rows, Layout(), r"shape \(26, 6\), but the local batch has 13 samples"),
    ],
    ids=["micro-batches", "micro-batches on one worker", "two rows per sample"],
)
def test_what_cannot_be_gathered_is_refused(
    train: Any, layout: Layout, said: str, tmp_path: Path
) -> None:
    with pytest.raises(RankFailed, match=said):
        run_ranks(train, layout.workers, tmp_path, layout=layout)


def test_modes_whose_workers_compute_apart_are_refused() -> None:
    batches = Batches(Sequential(8), batch=4, steps=2, workers=1, rank=0)
    rows = torch.zeros(4, 2)
    whole = WholeBatch(Batch(rows, rows, 4, 4), batches, 1, None, apart="canonical")
    with gathering(whole), pytest.raises(PacelineError, match="--sync canonical"):
        paceline.gather(rows)


def test_outside_a_step_it_returns_its_argument() -> None:
    rows = torch.zeros(3)
    assert paceline.gather(rows) is rows
