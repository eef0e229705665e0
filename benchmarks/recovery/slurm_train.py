"""A training on paced devices that writes down when it has taken which step."""

import os
import time
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.testbed.paced import PacedCost, paced_model

LAYERS, BATCH = 4, 64
LAYER = PacedCost(
    forward_seconds=0.0009,
    backward_seconds=0.0018,
    parameter_bytes=200_000,
    for_each_sample=True,
)


def training() -> paceline.Training:
    inputs = torch.rand(24 * BATCH, 16, generator=torch.Generator().manual_seed(0))
    return paceline.Training(
        model=lambda: paced_model([LAYER] * LAYERS),
        loss=F.mse_loss,
        data=TensorDataset(inputs, 2 * inputs),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=BATCH,
        steps=int(os.environ["STEPS"]),
    )


def loop() -> None:
    own = Path(os.environ["PACELINE_RUN"]) / f"steps-{os.uname().nodename}-{os.getpid()}"
    with paceline.start(training()) as trainer, own.open("w", buffering=1) as steps:
        for batch in trainer:
            steps.write(f"{trainer.step(batch).step} {time.time()}\n")
