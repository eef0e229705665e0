"""`paceline resume`: a run that was stopped goes on, and what it says of mistakes."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from command import PACELINE, paceline, paceline_json, write_training
from paceline.report import RunReader
from paceline.specs import Run

SLOW = """
import time, dataclasses
quick = training

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 2))

    def forward(self, x):
        time.sleep(0.05)
        return self.layers(x)

def training():
    return dataclasses.replace(quick(), model=Slow, steps=60)
"""


def only_run(folder: Path) -> Run:
    (run,) = (folder / "runs").iterdir()
    return Run.open(run)


def started(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """A run in the background that has taken some steps."""
    write_training(folder, SLOW)
    process = subprocess.Popen([*PACELINE, "run", "train.py", "--quiet", *words], cwd=folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        there = list(folder.glob("runs/*/secret"))
        if there and RunReader(only_run(folder)).refresh().step:
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError("no step was taken")


def stopped(folder: Path, *words: str) -> Run:
    """A run that was asked to stop before its end."""
    process = started(folder, *words)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 3
    return only_run(folder)


@pytest.mark.nightly
def test_dropout_too_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """To the bit, on as many workers: random numbers are a function of the step."""
    (tmp_path / "alone").mkdir()
    run = stopped(tmp_path, "-n", "2", "--ledger")
    reached = RunReader(run).refresh().step[-1]
    assert 0 < reached < 60
    result = paceline_json("resume", run.path, folder=tmp_path)
    assert (result["status"], result["steps"], result["workers"]) == ("finished", 60, 2)
    write_training(tmp_path / "alone", SLOW)
    alone = paceline_json("run", "train.py", "-n", "2", folder=tmp_path / "alone")
    assert result["final_loss"] == alone["final_loss"]
    assert result["samples"] == alone["samples"]
    ledger = paceline_json("ledger", run.path, folder=tmp_path)
    assert ledger["exact"]
    assert "more than once" in paceline("ledger", run.path, folder=tmp_path).stdout
    said = paceline("resume", run.path, folder=tmp_path, expect=2).stderr
    assert "has taken all its 60 steps" in said
    assert "start a new run" in said


def test_mistakes(tmp_path: Path) -> None:
    run = stopped(tmp_path, "-n", "2", "--shards", "2")

    def refused(*words: str) -> str:
        return paceline("resume", run.path, *words, folder=tmp_path, expect=2).stderr

    said = refused("-n", "3")
    assert "3 workers cannot be divided into copies of 2" in said
    assert "a checkpoint fits any layout" in said
    assert "give one of them" in refused("-n", "2", "--nodes", "2")
    assert "has no ledger" in paceline("ledger", run.path, folder=tmp_path, expect=2).stderr


@pytest.mark.nightly
def test_on_another_layout_and_with_another_training(tmp_path: Path) -> None:
    run = stopped(tmp_path, "-n", "2", "--shards", "2")
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("batch=32", "batch=16"))
    said = paceline("resume", run.path, folder=tmp_path, expect=1).stderr
    assert "the run started with batch=32, but batch is 16 now" in said
    assert "resume with batch=32" in said
    (tmp_path / "train.py").write_text(text.replace("steps=60)", "steps=60, shuffle=False)"))
    said = paceline("resume", run.path, folder=tmp_path, expect=1).stderr
    assert "the sample order differs from the one that the run started with" in said
    (tmp_path / "train.py").write_text(text.replace("nn.Linear(12, 16)", "nn.Linear(12, 18)"))
    said = paceline("resume", run.path, folder=tmp_path, expect=1).stderr
    assert "is float32 [18, 12] here, but float32 [16, 12] in the checkpoint" in said
    (tmp_path / "train.py").write_text(text)
    result = paceline_json("resume", run.path, "-n", "3", "--shards", "1", folder=tmp_path)
    assert (result["status"], result["steps"], result["workers"]) == ("finished", 60, 3)


@pytest.mark.nightly
def test_a_time_limit_of_ones_own(tmp_path: Path) -> None:
    write_training(tmp_path, SLOW.replace("steps=60", "steps=3000"))
    result = paceline_json(
        *("run", "train.py", "-n", "1", "--time", "1"), folder=tmp_path, expect=3
    )
    assert result["status"] == "stopped"
    assert 60 <= result["seconds"] + result["startup_seconds"] < 75
    assert result["checkpoints"]["last_step"] == result["steps"]


@pytest.mark.nightly
def test_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    run = stopped(tmp_path, "-n", "1")
    for file in run.checkpoints.rglob("*.safetensors"):
        file.write_bytes(b"\0" + file.read_bytes()[1:])
    said = paceline("resume", run.path, folder=tmp_path, expect=1).stderr
    assert "none of the 1 checkpoints of this run is as it was written" in said


def test_a_place_that_nothing_opens(tmp_path: Path) -> None:
    write_training(tmp_path)
    said = paceline(
        *("run", "train.py", "-n", "1", "--checkpoints", "nowhere://bucket/path"),
        folder=tmp_path,
        expect=2,
    ).stderr
    assert "checkpoints were to go to nowhere://bucket/path" in said
