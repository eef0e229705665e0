"""A small ResNet on shapes drawn at random: batch norm, augmentation, EMA, validation.

Run it with `paceline run examples/resnet/train.py -n 2 --batch-norm synchronized -- --epochs 6`.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.utils.data import Dataset

import paceline

SIZE, CLASSES, BATCH, WARM_UP = 12, 3, 64, 10


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inside)) + self.shortcut(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        Block(1, 8, 1),
        Block(8, 16, 2),
        Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


@dataclass(frozen=True)
class Shapes(Dataset[Any]):
    """Squares, crosses and diagonals in noise; `flips` also mirrors half of them."""

    samples: int
    seed: int
    flips: bool

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(self.seed * self.samples + index)
        kind = index % CLASSES
        row, column = torch.randint(SIZE - 5, (2,), generator=generator).tolist()
        shape = torch.zeros(5, 5)
        if kind == 0:
            shape[[0, -1]] = shape[:, [0, -1]] = 1
        elif kind == 1:
            shape[2] = shape[:, 2] = 1
        else:
            shape = torch.eye(5)
        image = 0.7 * torch.randn(1, SIZE, SIZE, generator=generator)
        image[0, row : row + 5, column : column + 5] += shape
        return (image.flip(-1) if self.flips and torch.rand(()) < 0.5 else image), kind


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()


def optimizer(parameters: paceline.Parameters) -> torch.optim.Optimizer:
    """Decay the weights of convolutions, not biases and those of batch norm."""
    decayed = [each for _, each in parameters.named() if each.ndim > 1]
    others = [each for _, each in parameters.named() if each.ndim == 1]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": 1e-3},
        {"params": others},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def training() -> paceline.Training:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=1536)
    given = parser.parse_args()
    steps = given.epochs * -(-given.samples // BATCH)

    def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
        warm_up = LinearLR(optimizer, 0.1, total_iters=WARM_UP)
        decay = CosineAnnealingLR(optimizer, steps - WARM_UP)
        return SequentialLR(optimizer, [warm_up, decay], [WARM_UP])

    return paceline.Training(
        model=resnet,
        loss=F.cross_entropy,
        data=Shapes(given.samples, seed=0, flips=True),
        optimizer=optimizer,
        schedule=schedule,
        batch=BATCH,
        epochs=given.epochs,
        average=0.9,
        validation=paceline.Validation(
            Shapes(300, seed=1, flips=False),
            metrics={"accuracy": accuracy},
            best="accuracy",
            patience=3,
        ),
    )


def loop() -> None:
    """Trains as `training`, and logs the accuracy in training, too."""
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
            trainer.model.eval()  # batch norm must not count the batch twice
            with torch.no_grad():
                right = accuracy(trainer.model(batch.inputs), batch.target)
            trainer.model.train()
            trainer.log(accuracy=right, rate=trainer.optimizer.param_groups[0]["lr"])


if __name__ == "__main__":
    paceline.fit(training())
