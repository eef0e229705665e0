"""Time limits under Slurm: the job goes back into the queue by itself, and it is one run."""

import time
from pathlib import Path
from typing import Any

import pytest

from command import paceline, paceline_json, write_training
from paceline.report import RunReader
from paceline.specs import Run

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

SLOW = """
import time, dataclasses
quick = training

class Slow(nn.Sequential):
    def forward(self, x):
        time.sleep(0.25)
        return super().forward(x)

def training():
    return dataclasses.replace(quick(), model=lambda: Slow(nn.Linear(12, 2)), steps=STEPS)
"""


def _requeued(run: Run, turns: int, seconds: float) -> None:
    """Wait until a run is in its n-th turn and has taken a step in it."""
    deadline = time.monotonic() + seconds
    reader = RunReader(run)
    while time.monotonic() < deadline:
        state = reader.refresh()
        if state.generation >= turns and len(state.interruptions) >= turns and state.started:
            return
        time.sleep(0.1)
    raise AssertionError(f"turn {turns} was not reached: {reader.refresh()}")


def _at_its_end(run: Run, folder: Path) -> dict[str, Any]:
    """Wait for it; what the report says."""
    reader, deadline = RunReader(run), time.monotonic() + 120
    while not reader.refresh().over and time.monotonic() < deadline:
        time.sleep(0.1)
    return paceline_json("report", run.path, folder=folder)


def _send(name: str, job: str, cluster: str, folder: Path) -> None:
    """Send a signal to a job, by Slurm's own command."""
    paceline(
        *("testbed", "exec", "head", "--name", cluster),
        *("--", "scancel", f"--signal={name}", job),
        folder=folder,
    )


@pytest.mark.nightly
def test_stopped_by_hand_and_resumed_on_fewer_nodes(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, SLOW.replace("STEPS", "30"))
    submitted = paceline_json(
        "submit", "train.py", "--nodes", "2", "--testbed", cluster, folder=shared_folder
    )
    run = Run.open(Path(submitted["run"]))
    _requeued(run, 0, 90)
    said = paceline(
        *("resume", run.path, "--testbed", cluster), folder=shared_folder, expect=2
    ).stderr
    assert f"the run's job {submitted['job']} is still running on the testbed" in said
    _send("TERM", submitted["job"], cluster, shared_folder)
    assert "stopped" in paceline("watch", run.path, folder=shared_folder).stdout
    deadline = time.monotonic() + 30
    while paceline_json("watch", run.path, folder=shared_folder)["status"] != "stopped":
        assert time.monotonic() < deadline
    result = paceline_json(
        *("resume", run.path, "--nodes", "1", "--testbed", cluster, "--wait"), folder=shared_folder
    )
    assert (result["status"], result["steps"], result["workers"]) == ("finished", 30, 1)
    assert [each["cause"] for each in result["interruptions"]] == ["stopped"]


@pytest.mark.nightly
def test_nodes_that_another_job_needs(cluster: str, shared_folder: Path) -> None:
    """Slurm's own preemption: the run saves, makes room, and goes on by itself."""
    write_training(shared_folder, SLOW.replace("STEPS", "40"))
    submitted = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--ledger", "--testbed", cluster),
        folder=shared_folder,
    )
    run = Run.open(Path(submitted["run"]))
    _requeued(run, 0, 90)
    paceline(
        *("testbed", "exec", "head", "--name", cluster, "--"),
        *("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null"),
        "--wrap=sleep 3",
        folder=shared_folder,
    )
    summary = _at_its_end(run, shared_folder)
    assert (summary["status"], summary["steps"], summary["restarts"]) == ("finished", 40, 1)
    (interruption,) = summary["interruptions"]
    assert (interruption["cause"], interruption["steps_again"]) == ("preempted", 0)
    assert paceline_json("ledger", run.path, folder=shared_folder)["exact"]


@pytest.mark.nightly
def test_the_warning_before_the_limit(cluster: str, shared_folder: Path) -> None:
    """The warning is sent by hand here: Slurm's own comes within a minute's resolution."""
    write_training(shared_folder, SLOW.replace("STEPS", "40"))
    submitted = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--time", "30", "--ledger", "--testbed", cluster),
        folder=shared_folder,
    )
    run = Run.open(Path(submitted["run"]))
    for turn in range(2):
        _requeued(run, turn, 90)
        _send("USR1", submitted["job"], cluster, shared_folder)
    summary = _at_its_end(run, shared_folder)
    assert (summary["status"], summary["steps"], summary["restarts"]) == ("finished", 40, 2)
    causes = [each["cause"] for each in summary["interruptions"]]
    assert causes == ["time limit", "time limit"]
    assert paceline_json("ledger", run.path, folder=shared_folder)["exact"]


@pytest.mark.nightly
def test_a_limit_shorter_than_the_work(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, SLOW.replace("STEPS", "300"))
    summary = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--time", "1", "--ledger"),
        *("--testbed", cluster, "--wait"),
        folder=shared_folder,
        seconds=500.0,
    )
    (run,) = (shared_folder / "runs").iterdir()
    assert (summary["status"], summary["steps"]) == ("finished", 300)
    assert summary["restarts"] >= 3
    assert paceline_json("ledger", run, folder=shared_folder)["exact"]
