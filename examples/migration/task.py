"""The job of all scripts here: digits, a small network, a schedule.

Each framework shuffles in its own way. So that their losses can be
compared, the samples are shuffled once, here, and SHUFFLE is off.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
)
from torch.utils.data import TensorDataset

BATCH, EPOCHS, RATE, SHUFFLE = 64, 2, 3e-3, False
TRAINED_ON = 22 * BATCH  # the others are held out
WARM_UP, STEPS = 10, EPOCHS * TRAINED_ON // BATCH


def digits(*, held_out: bool = False) -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=random)
    rows = order[TRAINED_ON:] if held_out else order[:TRAINED_ON]
    pixels = torch.tensor(images, dtype=torch.float32) / 16
    return TensorDataset(pixels[rows], torch.tensor(labels)[rows])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def schedule(optimizer: torch.optim.Optimizer) -> LRScheduler:
    warm_up = LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    decay = CosineAnnealingLR(optimizer, STEPS - WARM_UP)
    return SequentialLR(optimizer, [warm_up, decay], [WARM_UP])


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()
