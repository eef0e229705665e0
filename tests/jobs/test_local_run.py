"""Runs by a Python caller: what `paceline run` and `paceline resume` call."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import write_training
from paceline.jobs.local_run import run_here
from paceline.jobs.request import TrainingRequest
from paceline.launch.target import Target
from paceline.report import RunReader
from paceline.specs import PacelineError, Run

CALLER = """
import json
from paceline import PacelineError
from paceline.jobs.local_run import run_here
from paceline.jobs.user_messages import Messages
from paceline.jobs.request import TrainingRequest
from paceline.jobs.resumed_run import resume
from paceline.launch.target import Target

notes = []
run = run_here(TrainingRequest(Target.parse("train.py")), 1, Messages(note=notes.append))
try:
    resume(run.path)
except PacelineError as error:
    print(json.dumps({"run": str(run.path), "notes": notes, "refused": error.problem}))
"""
"""In a process of its own, since a launcher adopts orphans from then on."""


def test_a_python_caller_trains_and_gets_the_messages(tmp_path: Path) -> None:
    write_training(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CALLER], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    run = Run.open(Path(result["run"]))
    assert RunReader(run).refresh().status == "finished"
    assert result["notes"] == [f"run: runs/{run.name}"]
    assert result["refused"] == f"runs/{run.name} has taken all its 20 steps"


def test_an_unknown_listener_is_refused_before_a_run_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = Target.parse(str(write_training(tmp_path)))
    with pytest.raises(PacelineError, match="nobody"):
        run_here(TrainingRequest(target, listeners=("nobody",)), 1)
    assert not (tmp_path / "runs").exists()
