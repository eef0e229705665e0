import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline


def spiral() -> TensorDataset:
    """Points on three arms of a spiral, labeled by arm."""
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(3, (360,), generator=generator)
    radius = torch.rand(360, generator=generator)
    angle = 4 * radius + arm * 2.1 + 0.2 * torch.randn(360, generator=generator)
    return TensorDataset(
        torch.stack([radius * angle.sin(), radius * angle.cos()], dim=1), arm
    )


def training() -> paceline.Training:
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3)),
        loss=F.cross_entropy,
        data=spiral(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        batch=30,
        epochs=10,
    )


def stops_once() -> None:
    with paceline.start(training()) as trainer:
        for batch in trainer:
            if trainer.step(batch).step == 60:
                break
