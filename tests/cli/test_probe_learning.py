"""`paceline probe TRAIN --learning`: a training's critical batch from a few steps on one device.

Before, only the report of a whole run had it, and a plan took it as a number.
"""

from pathlib import Path

import pytest

from command import paceline, paceline_json
from paceline.specs import Learning

TRAIN = """
import torch, paceline
from torch import nn
from torch.utils.data import TensorDataset


def training():
    inputs = torch.randn(4096, 8, generator=torch.Generator().manual_seed(1))
    target = inputs.sum(dim=1, keepdim=True) + torch.randn(4096, 1)
    return paceline.Training(
        model=lambda: nn.Linear(8, 1),
        loss=nn.functional.mse_loss,
        data=TensorDataset(inputs, target),
        optimizer=lambda given: torch.optim.SGD(given, lr=1e-3),
        batch=64,
        steps=10_000,
    )


def normalized():
    from dataclasses import replace

    model = lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 1))
    return replace(training(), model=model)
"""


@pytest.mark.slow
def test_a_probe_writes_what_a_plan_can_use(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    asked = ("probe", "train.py", "--learning", "--steps", "60")
    found = paceline_json(*asked, folder=tmp_path)
    learning = Learning.read(tmp_path / "learning.toml")
    assert learning == Learning.model_validate(found["learning"])
    assert (learning.training, learning.batch, learning.steps) == ("train.py:training", 64, 60)
    assert [each.samples for each in learning.growth][-1] == 60 * 64
    assert learning.critical is not None
    assert learning.low < learning.critical
    assert not (tmp_path / "cluster.toml").exists()


def test_what_it_needs_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = paceline("probe", "--learning", folder=tmp_path, expect=2)
    assert "--learning was given without a training" in done.stderr
    done = paceline("probe", "train.py", "--learning", "--nodes", "2", folder=tmp_path, expect=2)
    assert "one device is enough" in done.stderr
