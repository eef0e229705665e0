"""Kinds of devices: torch's accelerator, the CPU, or one from an outside package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outside import environment

NAMED = """
import torch
from paceline.comm.device_kind import DEVICES, device_kind
from paceline.specs import Placement
device = device_kind().bind(Placement())
print(",".join(DEVICES.names), device, device_kind().backend(device), device_kind().title(device))
"""

TRAINING = """
import torch, paceline
from paceline.comm.device_kind import device_kind

def training():
    assert device_kind().title(torch.device("cpu")).startswith("borrowed ")
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8, 1))
    return paceline.Training(
        model=lambda: torch.nn.Linear(4, 1),
        loss=torch.nn.functional.mse_loss,
        data=data,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
        batch=4,
        steps=3,
    )
"""


def run(*command: str, kind: str | None, folder: Path) -> "subprocess.CompletedProcess[str]":
    named = {} if kind is None else {"PACELINE_DEVICE_KIND": kind}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment("device") | named,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_cpu_where_torch_finds_no_accelerator(tmp_path: Path) -> None:
    done = run("-c", NAMED, kind=None, folder=tmp_path)
    assert done.stdout.startswith("cpu,cuda,xpu,borrowed-cpu cpu gloo "), done.stderr


def test_a_kind_from_outside_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    command = ("-m", "paceline", "run", "train.py", "-n", "2", "--json")
    done = run(*command, kind="borrowed-cpu", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3


def test_a_kind_that_is_not_there(tmp_path: Path) -> None:
    done = run("-c", NAMED, kind="cuda", folder=tmp_path)
    assert "PACELINE_DEVICE_KIND=cuda was set, but this machine has no such device" in done.stderr


def test_an_unknown_kind_is_refused_with_those_there_are(tmp_path: Path) -> None:
    done = run("-c", NAMED, kind="gpu", folder=tmp_path)
    assert "unknown device kind 'gpu'" in done.stderr
    assert "cpu, cuda, xpu, borrowed-cpu" in done.stderr


def test_survivors_outlive_the_watchdog_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read, not run: torch's "ProcessGroupNCCL Environment Variables". `sim` runs its own."""
    from paceline.comm.devices.cuda import DEVICE

    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING", None)
    monkeypatch.setitem(os.environ, "TORCH_NCCL_ENABLE_MONITORING", "1")
    DEVICE.outlive_peers()
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_NCCL_ENABLE_MONITORING"] == "1"
