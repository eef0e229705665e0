"""`paceline probe TRAIN --learning`: a training's critical batch from a few steps on one device.

Before, only the report of a whole run had it, and a plan took it as a number.
"""

from pathlib import Path

import pytest

from command import CLUSTER, paceline, paceline_json
from paceline.specs import BatchChoice, Learning

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
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    said = paceline_json("plan", "train.py", "--batch", "best", "--count", folder=tmp_path)
    choice = BatchChoice.model_validate(said["batches"])
    assert choice.own == 64
    assert choice.critical.value == learning.critical
    assert 64 in [each.batch for each in choice.options]
    assert said["batch"] in [each.batch for each in choice.options]


def test_batches_are_not_compared_without_a_critical_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    done = paceline("plan", "train.py", "--batch", "64,128", "--count", folder=tmp_path, expect=2)
    assert "the critical batch of the training is not known" in done.stderr
    assert "paceline probe train.py --learning" in done.stderr


def test_what_it_needs_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = paceline("probe", "--learning", folder=tmp_path, expect=2)
    assert "--learning was given without a training" in done.stderr
    done = paceline("probe", "train.py", "--learning", "--nodes", "2", folder=tmp_path, expect=2)
    assert "one device is enough" in done.stderr
