"""Paceline on simulated devices, through the entry point `sim` of `paceline.devices`."""

import json
import os
from pathlib import Path

import pytest

from command import paceline_json
from outside import environment

TRAINING = """
import torch, paceline

def loss(outputs, targets):
    assert outputs.device.type == "sim", outputs.device
    return torch.nn.functional.mse_loss(outputs, targets)

def training():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    return paceline.Training(
        model=lambda: torch.nn.Linear(4, 1),
        loss=loss,
        data=data,
        optimizer=lambda params: torch.optim.AdamW(params, lr=0.1),
        batch=8,
        steps=6,
    )
"""


def _run(folder: Path, kind: str, training: str) -> float:
    (folder / "train.py").write_text(training)
    # Two devices: before they were counted, a run without -n had one worker.
    named = {"PACELINE_DEVICE_KIND": kind, "PACELINE_SIM_DEVICES": "2"}
    variables = environment("simulated") | named
    new = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    result = paceline_json("run", "train.py", folder=folder, **new)
    assert result["steps"] == 6, json.dumps(result)
    assert result["workers"] == (2 if kind == "sim" else 1)
    return float(result["final_loss"])


@pytest.mark.slow
def test_a_run_on_a_simulated_device_has_the_losses_of_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "sim").mkdir()
    (tmp_path / "cpu").mkdir()
    on_sim = _run(tmp_path / "sim", "sim", TRAINING)
    on_cpu = _run(tmp_path / "cpu", "cpu", TRAINING.replace('"sim"', '"cpu"'))
    assert abs(on_sim - on_cpu) < 1e-6
