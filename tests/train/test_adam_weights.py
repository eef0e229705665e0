"""Weights of coordinates in the gradient noise, as Adam has them."""

import pytest
import torch
from torch import nn

from paceline.train.gradients.adam_weights import DAMPING, AdamWeights


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_the_square_is_that_of_the_update(dtype: torch.dtype) -> None:
    """Complex numbers are pairs of real ones, as in torch's own Adam."""
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(3, 4, dtype=dtype))
    optimizer = torch.optim.Adam([parameter], betas=(0.9, 0.99))
    for _ in range(3):
        parameter.grad = torch.randn(3, 4, dtype=dtype)
        optimizer.step()
    weights = AdamWeights.before_step(optimizer, torch.device("cpu"))
    assert weights is not None

    def real(values: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(values) if values.is_complex() else values

    root = (real(optimizer.state[parameter]["exp_avg_sq"]) / (1 - 0.99**3)).sqrt()
    damping = DAMPING * (root.square().sum() / parameter.numel()).sqrt()
    gradient = torch.randn(3, 4, dtype=dtype)
    expected = (real(gradient).square() / (root + damping)).sum()
    assert weights.square(parameter, gradient).item() == pytest.approx(expected.item(), rel=1e-5)


def test_there_are_none_before_the_first_update() -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(2))])
    assert AdamWeights.before_step(optimizer, torch.device("cpu")) is None
