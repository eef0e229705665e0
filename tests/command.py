"""Running the `paceline` command as a user does: another process."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

import device_choice
import json_form

PACELINE = [sys.executable, "-m", "paceline"]
EXAMPLES = Path(__file__).parent.parent / "examples"


def paceline(
    *words: str | Path, folder: Path, seconds: float = 100.0, expect: int = 0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run `paceline WORDS` in a folder and check its exit code."""
    done = subprocess.run(
        [*PACELINE, *map(str, words)],
        cwd=folder,
        env=os.environ | environment | device_choice.of_command(environment.get("PYTHONPATH")),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr or expect == 1
    return done


def paceline_json(*words: str | Path, folder: Path, **options: Any) -> dict[str, Any]:
    """What `paceline WORDS --json` prints, which has the form that its `schema` names."""
    printed = json.loads(paceline(*words, "--json", folder=folder, **options).stdout)
    return json_form.checked(printed)


def workers_of(supervisor: "subprocess.Popen[str]") -> set[psutil.Process]:
    """The workers that a `paceline run` has started, without what they were forked from."""
    found = set()
    for child in psutil.Process(supervisor.pid).children():
        with suppress(psutil.NoSuchProcess):
            role = child.name().removeprefix("paceline ")
            found |= {child} if role.isdigit() or role == "joins" else set()
    return found


SMALL = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import paceline

def data():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(200, 12, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())

def training():
    return paceline.Training(
        model=lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 2)),
        loss=F.cross_entropy,
        data=data(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=32,
        steps=20,
    )
"""
"""A train.py of a second."""


CLUSTER = """
nodes = 2
devices_per_node = 1
inside = "pcie4"
between = "ethernet-10g"

[device]
name = "a small computer"
peak_flops = { fp32 = 5e10, bf16 = 1e10 }
memory_bytes = 4_000_000_000
memory_bytes_per_second = 1e10
units = 1
matmul_efficiency = 0.8
source = "assumed"
efficiency_source = "assumed"
"""
"""A cluster.toml, of computers that are nobody's."""


BREAKING = """
import dataclasses
from pathlib import Path
whole = training

class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(12, 2), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 14 and not Path("mended").exists():
            raise ValueError("this breaks")
        return self.layer(x)

def training():
    return dataclasses.replace(whole(), model=Breaking)
"""
"""More of a train.py: its training fails after ten steps, until a file `mended` exists."""


def write_training(folder: Path, more: str = "", text: str = SMALL) -> Path:
    """Write a train.py, with more definitions after it."""
    path = folder / "train.py"
    path.write_text(text + more)
    return path
