"""Image classification: handwritten digits, 8 x 8 pixels, 1,797 of them. No download."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

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


if __name__ == "__main__":
    paceline.fit(training())
