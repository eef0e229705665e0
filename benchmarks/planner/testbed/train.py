"""Two paced models for the testbed: many small blocks with wide activations, few large blocks."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import paceline
from paceline.testbed.paced import PacedCost, paced_model


@dataclass(frozen=True)
class Shape:
    """Of a paced model."""

    blocks: int
    parameter_bytes: int
    """Of one block."""
    forward_seconds: float
    """Of one block and one sample; backward takes twice as long."""
    features: int
    """Numbers of a sample that go from block to block."""


DEEP = Shape(blocks=8, parameter_bytes=500_000, forward_seconds=0.004, features=32_768)
HEAVY = Shape(blocks=4, parameter_bytes=2_000_000, forward_seconds=0.010, features=4_096)
BATCH = 16


class Block(nn.Module):
    """One paced layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layer = paced_model(
            [
                PacedCost(
                    forward_seconds=shape.forward_seconds,
                    backward_seconds=2 * shape.forward_seconds,
                    parameter_bytes=shape.parameter_bytes,
                    for_each_sample=True,
                )
            ]
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Take the time of a block."""
        output: Tensor = self.layer(inputs)
        return output


class Model(nn.Module):
    """Blocks one after the other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.blocks))

    def forward(self, inputs: Tensor) -> Tensor:
        """Pass all blocks."""
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


def _training(shape: Shape) -> paceline.Training:
    inputs = torch.ones(64, 1).expand(64, shape.features)
    return paceline.Training(
        model=lambda: Model(shape),
        loss=lambda output, target: (output.mean(1) - target).square().mean(),
        data=TensorDataset(inputs, torch.zeros(64)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        batch=BATCH,
        steps=int(os.environ.get("TESTBED_STEPS", "12")),
    )


def deep() -> paceline.Training:
    return _training(DEEP)


def heavy() -> paceline.Training:
    return _training(HEAVY)
