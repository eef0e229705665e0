"""A synchronization mode from an outside package trains, resumes and is planned."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from command import EXAMPLES, PACELINE, paceline, write_training
from outside import environment

pytestmark = pytest.mark.slow

CLUSTER = """
nodes = 4
devices_per_node = 1
inside = "pcie4"
between = "ethernet-1g"

[device]
name = "a computer"
kind = "cpu"
memory_bytes = 16_000_000_000
memory_bytes_per_second = 2e10
units = 8
matmul_efficiency = 0.8
source = "assumed"
efficiency_source = "assumed"

[device.peak_flops]
fp32 = 1e13
bf16 = 1e13
"""
MODEL = ["--model", "gpt: layers=8 width=512 heads=8 seq=64 vocab=8192", "--batch", "64"]
SLOW = """
import time, dataclasses, pathlib
quick = training

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)

class Marked(torch.optim.SGD):
    taken = 0

    def step(self, closure=None):
        self.taken += 1
        if self.taken == 6:
            pathlib.Path(__file__).with_name("begun").touch()
        return super().step(closure)

def training():
    return dataclasses.replace(quick(), model=lambda: Slow(12, 2), steps=30,
        optimizer=lambda parameters: Marked(parameters, lr=0.1))
"""


@pytest.fixture(scope="module")
def having() -> dict[str, Any]:
    """The environment of a process with the package."""
    return environment("sync")


@pytest.mark.nightly
def test_it_trains_the_example(tmp_path: Path, having: dict[str, Any]) -> None:
    words = ("run", EXAMPLES / "digits" / "train.py", "-n", "2", "--sync", "outside-mode:every=8")
    found = json.loads(paceline(*words, "--json", folder=tmp_path, **having).stdout)
    assert found["sync"] == "outside-mode:every=8"
    assert found["workers"] == 2
    assert found["final_loss"] < 1.0


@pytest.mark.nightly
def test_a_stopped_run_resumes(tmp_path: Path, having: dict[str, Any]) -> None:
    write_training(tmp_path, SLOW)
    command = [*PACELINE, "run", "train.py", "--quiet", "-n", "2", "--sync", "outside-mode"]
    process = subprocess.Popen(command, cwd=tmp_path, env=having)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 3
    (folder,) = (tmp_path / "runs").iterdir()
    resumed = json.loads(paceline("resume", folder, "--json", folder=tmp_path, **having).stdout)
    assert resumed["steps"] == 30
    assert resumed["sync"] == "outside-mode"


def test_it_is_planned_when_asked_for_and_tried_when_not(
    tmp_path: Path, having: dict[str, Any]
) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    asked = _planned("--sync", "outside-mode:every=2", folder=tmp_path, having=having)
    assert asked["estimate"]["sync"] == {"mode": "outside-mode", "every": 2}
    assert asked["estimate"]["extra_samples"] == 1.2
    assert "from outside" in asked["sync_reason"]
    free = _planned(folder=tmp_path, having=having)
    tried = {free["estimate"]["sync"]["mode"], *(each["what"] for each in free["alternatives"])}
    assert tried & {"outside-mode", "outside averages"}


def test_an_unknown_mode_lists_it(tmp_path: Path, having: dict[str, Any]) -> None:
    write_training(tmp_path)
    words = ("run", "train.py", "-n", "2", "--sync", "outside-mod")
    said = paceline(*words, folder=tmp_path, expect=2, **having).stderr
    assert "unknown synchronization mode 'outside-mod'" in said
    assert "use 'outside-mode', or one of: allreduce" in " ".join(said.split())


def _planned(*words: str, folder: Path, having: dict[str, Any]) -> dict[str, Any]:
    done = paceline("plan", *MODEL, "--nodes", "4", *words, "--json", folder=folder, **having)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
