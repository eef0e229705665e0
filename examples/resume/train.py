"""Handwritten digits, long enough to be interrupted: `stop_and_resume.sh` beside it does so.

The schedule of the learning rate shows that a resumed run goes on where it was, not from the start.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset

import paceline

EPOCHS, BATCH = 8, 64


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
    data = digits()
    steps = EPOCHS * -(-len(data) // BATCH)
    return paceline.Training(
        model=network,
        loss=F.cross_entropy,
        data=data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        schedule=lambda optimizer: CosineAnnealingLR(optimizer, T_max=steps),
        batch=BATCH,
        epochs=EPOCHS,
    )


if __name__ == "__main__":
    paceline.fit(training())
