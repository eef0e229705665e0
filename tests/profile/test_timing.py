"""Regions of a model, timed: paced layers say what must come out."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from paceline.parallel.dry_run.model_profile import profile_of
from paceline.parallel.measured_model import measured
from paceline.profile.timing import merged, with_times
from paceline.specs import Layout, ModelTimes
from paceline.testbed.paced import PacedCost, paced_model
from paceline.user.training import Training

pytestmark = pytest.mark.alone

FORWARD, BACKWARD, BLOCKS = 0.01, 0.02, 3


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = paced_model([PacedCost(FORWARD, BACKWARD, 4000)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inside(x)
        return output


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block() for _ in range(BLOCKS))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        output: torch.Tensor = self.head(x)
        return output


def test_blocks_take_as_long_as_they_are_paced() -> None:
    training = Training(
        model=_Model,
        loss=lambda output, target: output.mean(),
        data=TensorDataset(torch.ones(4, 8), torch.ones(4)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=4,
        steps=1,
    )
    times = measured(training, Layout(), device=torch.device("cpu"), threads=1, budget_seconds=3.0)
    profile = with_times(profile_of(training, "paced", Layout()), times, "this one")
    assert profile.measured_on == "this one"
    timing = profile.block.timing
    assert timing is not None
    assert timing.samples == (1, 2, 4)
    assert timing.forward_seconds == pytest.approx([FORWARD] * 3, rel=0.15)
    assert timing.backward_seconds == pytest.approx([BACKWARD] * 3, rel=0.15)
    assert profile.after.timing is not None
    assert max(profile.after.timing.forward_seconds) < FORWARD


def test_several_devices_are_merged_at_the_sizes_that_all_came_to() -> None:
    quick = ModelTimes(samples=(1, 2), parts=((1.0,) * 6, (2.0,) * 6), optimizer_seconds=0.1)
    slow = ModelTimes(samples=(1,), parts=((3.0,) * 6,), optimizer_seconds=0.3)
    both = merged([quick, slow])
    assert both == ModelTimes(samples=(1,), parts=((2.0,) * 6,), optimizer_seconds=0.2)
