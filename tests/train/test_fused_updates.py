"""Accelerators use fused updates, unless the user chose a kernel; `foreach=False` was ignored."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from paceline.parallel.parallel_model import ParallelModel
from paceline.train.state.fused_updates import fuse_on_accelerator


class _Own(torch.optim.SGD):
    pass


def _fused(optimizer: torch.optim.Optimizer, model: nn.Module, device: str = "cuda") -> Any:
    parallel_model = cast(ParallelModel, SimpleNamespace(model=model))
    fuse_on_accelerator(optimizer, parallel_model, torch.device(device))
    return optimizer.param_groups[0]["fused"]


def test_a_kernel_is_fused_unless_the_user_chose_one() -> None:
    model = nn.Linear(2, 2)
    given = list(model.parameters())
    assert _fused(torch.optim.AdamW(given), model) is True
    assert _fused(torch.optim.AdamW(given), model, "cpu") is None
    assert _fused(torch.optim.AdamW(given, foreach=False), model) is None
    assert _fused(torch.optim.AdamW(given, fused=False), model) is False
    assert _fused(torch.optim.Adam(given, capturable=True), model) is None


@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_fused_kernel_cannot_do_stays(sparse: bool) -> None:
    model = nn.Embedding(3, 2, sparse=sparse)
    fused = _fused(torch.optim.SGD(model.parameters()), model)
    assert fused is (None if sparse else True)
    assert _fused(_Own(model.parameters()), model) is None
