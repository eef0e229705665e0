"""Image classification: handwritten digits, 8 x 8 pixels, 1,797 of them. No download."""

from dataclasses import replace

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import paceline


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def digits() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return TensorDataset(pixels, torch.tensor(labels))


def training() -> paceline.Training:
    return paceline.Training(
        model=network,
        loss=F.cross_entropy,
        data=digits(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=128,
        epochs=5,
    )


def held_out() -> None:
    """Trains on four of five digits, and says how many of the others it knows."""

    def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(1) == target).float().mean()

    data = digits()
    seen = [number for number in range(len(data)) if number % 5]
    with paceline.start(replace(training(), data=Subset(data, seen))) as trainer:
        for batch in trainer:
            trainer.step(batch)
        others = Subset(data, range(0, len(data), 5))
        trainer.evaluate(others, metrics={"accuracy": accuracy})


if __name__ == "__main__":
    paceline.fit(training())
