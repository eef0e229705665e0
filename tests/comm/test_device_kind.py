"""Kinds of devices: torch's accelerator, the CPU, or one from an outside package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outside import environment

ASKED = """
import os
from paceline.comm.device_kind import DEVICES, device_kind
from paceline.specs import PacelineError, Placement
device = device_kind().bind(Placement())
print(",".join(DEVICES.names), device, device_kind().backend(device), device_kind().title(device))
for named in ("cuda", "gpu"):
    os.environ["PACELINE_DEVICE_KIND"] = named
    device_kind.cache_clear()
    try:
        device_kind()
    except PacelineError as error:
        print(error)
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


def test_the_cpu_without_accelerators_and_kinds_that_are_not_there(tmp_path: Path) -> None:
    done = run("-c", ASKED, kind=None, folder=tmp_path)
    assert done.stdout.startswith("cpu,cuda,xpu,borrowed-cpu cpu gloo "), done.stderr
    assert "PACELINE_DEVICE_KIND=cuda was set, but this machine has no such device" in done.stdout
    assert "unknown device kind 'gpu'" in done.stdout
    assert done.stdout.count("cpu, cuda, xpu, borrowed-cpu") == 1


def test_a_kind_from_outside_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    command = ("-m", "paceline", "run", "train.py", "-n", "2", "--json")
    done = run(*command, kind="borrowed-cpu", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 3


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
