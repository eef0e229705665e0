"""Two nodes, one half as fast as the other: the plan gives each what it can do in the same time.

The nodes of a testbed are equally fast, so here each takes its time per sample (an emulated
device): 16 ms on the first node, 8 ms on the second. On real machines leave that out.
"""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline

SECONDS_PER_SAMPLE = {"0": 0.016, "1": 0.008}


class PacedByNode(nn.Module):
    """A small network that takes as long as its node's device would."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 2))
        self.seconds_per_sample = SECONDS_PER_SAMPLE[os.environ.get("SLURM_NODEID", "0")]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds_per_sample * len(inputs))
        out: torch.Tensor = self.network(inputs)
        return out


def training() -> paceline.Training:
    inputs = torch.randn(1200, 32, generator=torch.Generator().manual_seed(0))
    return paceline.Training(
        model=PacedByNode,
        loss=F.cross_entropy,
        data=TensorDataset(inputs, (inputs[:, 0] > 0).long()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=60,
        steps=20,
    )
