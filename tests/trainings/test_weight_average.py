"""A CNN with batch norm, augmentation, warm-up and cosine, and an average of its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset, TensorDataset

import paceline
from paceline.data.batches import Batches
from paceline.data.randomness import Seeded
from paceline.schedulers.task_placement import run_folder
from paceline.specs import Layout, PacelineError
from trainings.comparison import Trained, killed_and_resumed, seeded_model, under_paceline

STEPS, BATCH, SAMPLES, DECAY = 10, 16, 40, 0.8
LAYOUTS = {
    "1 worker": Layout(),
    "2 replicas": Layout(replicas=2, batch_norm="synchronized"),
    "2 shards": Layout(shards=2, batch_norm="synchronized"),
}


@dataclass(frozen=True)
class Flipped(Dataset[Any]):
    """Random images, half of which are flipped whenever they are drawn."""

    images: torch.Tensor

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        target = image.flatten()[:4].argmax()
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), target


def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Warm up for 3 steps, then decay."""
    warm_up = LinearLR(optimizer, 0.1, total_iters=3)
    return SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, STEPS - 3)], [3])


def training(**changes: Any) -> paceline.Training:
    images = torch.randn(SAMPLES, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    settings: dict[str, Any] = {
        "model": lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Flatten(),
            nn.Linear(16, 4),
        ),
        "loss": F.cross_entropy,
        "data": Flipped(images),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        "schedule": schedule,
        "batch": BATCH,
        "steps": STEPS,
        "average": DECAY,
    }
    return paceline.Training(**settings | changes)


def averaged(trainer: paceline.Trainer) -> Trained:
    """Return the averaged weights; the trained ones come back afterwards."""
    before = Trained.of([], trainer.model)
    with trainer.averaged():
        inside = Trained.of([], trainer.model)
    assert Trained.of([], trainer.model) == before
    assert inside != before
    return inside


@pytest.fixture(scope="module")
def plain() -> Trained:
    """The averaged model of a plain loop."""
    described, losses = training(), []
    model = seeded_model(described)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))  # type: ignore[no-untyped-call]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rate = schedule(optimizer)
    batches = Batches(described.sample_order(), batch=BATCH, steps=STEPS, workers=1, rank=0)
    for step, indices in enumerate(batches):
        samples = Seeded(described.data, described.seed).__getitems__(
            (batches.epoch(step), indices)
        )
        inputs, target = (torch.stack(column) for column in zip(*samples, strict=True))
        loss = F.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rate.step()
        average.update_parameters(model)
        losses.append(loss.item())
    return Trained.of(losses, average.module)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_equals_a_plain_loop(layout: str, plain: Trained, tmp_path: Path) -> None:
    found = under_paceline(training, LAYOUTS[layout], tmp_path, finish=averaged)
    found.check_equals(plain)


def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    found = killed_and_resumed(
        training, LAYOUTS["2 shards"], tmp_path, killed_after=5, finish=averaged
    )
    found.check_equals(plain.after(4))


def exported(trainer: paceline.Trainer) -> Trained:
    """Return the exported weights, which `evaluate` has used, too."""
    folder = run_folder()
    assert folder is not None
    trainer.export(folder / "weights.safetensors")
    model = training().model().eval()
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    images = torch.randn(SAMPLES, 1, 6, 6)
    target = torch.arange(SAMPLES) % 4
    with torch.no_grad():
        loss = float(F.cross_entropy(model(images), target))
    assert trainer.evaluate(TensorDataset(images, target)).loss == pytest.approx(loss)
    return Trained.of([], model)


def test_evaluation_and_export_use_the_average(plain: Trained, tmp_path: Path) -> None:
    found = under_paceline(training, LAYOUTS["1 worker"], tmp_path, finish=exported)
    found.check_equals(plain)


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(PacelineError, match="no decay between 0 and 1"):
        training(average=1.5)
