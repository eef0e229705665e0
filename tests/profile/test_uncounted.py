"""Operators without a FLOP count: whether they wait for memory or compute."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from paceline.parallel.measured_model import uncounted_measured
from paceline.plan.training_profiles import MEMORY_BOUND
from paceline.specs import Layout
from paceline.user.training import Training

pytestmark = pytest.mark.alone

NUMBERS = 1 << 22


@torch.library.custom_op("paceline_test::summed", mutates_args=())
def summed(x: torch.Tensor) -> torch.Tensor:
    """Reads everything and computes nearly nothing."""
    return x.sum()


@torch.library.custom_op("paceline_test::sines", mutates_args=())
def sines(x: torch.Tensor) -> torch.Tensor:
    """Computes much of what it reads."""
    y = x[:, : NUMBERS // 64]
    for _ in range(64):
        y = torch.tan(torch.sin(y))
    return y.sum() * x[0, 0]


class _Model(nn.Module):
    def __init__(self, operator: object) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            seen: torch.Tensor = self.operator(x)  # type: ignore[operator]
        return seen * self.scale


@pytest.mark.parametrize(("operator", "waits"), [(summed, True), (sines, False)])
def test_an_operator_waits_for_memory_or_computes(operator: object, waits: bool) -> None:
    training = Training(
        model=lambda: _Model(operator),
        loss=lambda output, target: output.mean(),
        data=TensorDataset(torch.rand(1, NUMBERS), torch.ones(1)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=1,
        steps=1,
    )
    device = torch.device("cpu")
    found, rates = uncounted_measured(training, Layout(), device=device, budget_seconds=1.0)
    assert sum(found.times.parts[0]) > 0
    limit = MEMORY_BOUND * rates.memory_bytes_per_second
    assert (found.bytes_per_second > limit) == waits
