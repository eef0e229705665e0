"""A training for studies of scaling on a testbed: devices are emulated, what they exchange is real.

On the nodes of a testbed all share the cores of one machine, so that real computing could not get
faster with more of them. Here each layer takes its time for every sample, as a device of its own
would, and leaves a gradient of its size, which goes over the testbed's links.
"""

import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.testbed.paced import PacedCost, paced_model

LAYERS, BATCH = 8, 64
LAYER = PacedCost(
    forward_seconds=0.00167,
    backward_seconds=0.00333,
    parameter_bytes=600_000,
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
        steps=60,
    )


if __name__ == "__main__":
    paceline.fit(training())
