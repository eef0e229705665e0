"""A training of a paced model: its layers and batch come from a file.

    paced_train.py COSTS.json

The file has `batch` and `layers`; a layer is its forward and backward seconds per sample on the
emulated device, and the bytes of its weights.
"""

import json
import sys
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import paceline
from paceline.testbed.paced import PacedCost, paced_model

SAMPLES = 16_384


def training() -> paceline.Training:
    given = json.loads(Path(sys.argv[1]).read_text())
    layers = [
        PacedCost(forward, backward, nbytes, for_each_sample=True)
        for forward, backward, nbytes in given["layers"]
    ]
    inputs = torch.rand(SAMPLES, 16, generator=torch.Generator().manual_seed(0))
    return paceline.Training(
        model=lambda: paced_model(layers),
        loss=F.mse_loss,
        data=TensorDataset(inputs, 2 * inputs),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=given["batch"],
        steps=60,
    )


if __name__ == "__main__":
    paceline.fit(training())
