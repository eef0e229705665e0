"""A mixture of experts: handwritten digits, each sent to one of six experts.

A router chooses one expert per image (top-1). A step calls only the experts that get images, so
that workers use different parameters. A second loss keeps the experts equally busy.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline

WIDTH, EXPERTS = 64, 6


class Expert(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, WIDTH), nn.Linear(WIDTH, 10)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.into(pixels).relu()
        routes = self.router(rows).softmax(-1)
        weight, chosen = routes.max(-1)
        mixed = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            if mine.any():
                mixed[mine] = expert(rows[mine])
        return self.out(rows + mixed * weight[:, None]), routes


def loss(output: tuple[torch.Tensor, torch.Tensor], label: torch.Tensor) -> torch.Tensor:
    """Add the balance of the experts over the whole batch, not over the local one."""
    logits, routes = output
    every = paceline.gather(routes)
    share = F.one_hot(every.argmax(-1), EXPERTS).float().mean(0)
    balance = EXPERTS * (share * every.mean(0)).sum()
    return F.cross_entropy(logits, label) + 0.01 * balance


def training() -> paceline.Training:
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32) / 16
    return paceline.Training(
        model=Mixture,
        loss=loss,
        data=TensorDataset(pixels, torch.tensor(labels)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        batch=60,
        epochs=4,
    )


if __name__ == "__main__":
    paceline.fit(training())
