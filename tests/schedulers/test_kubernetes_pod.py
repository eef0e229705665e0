"""A pod's program by itself: one pod that trains in a folder, as on a shared volume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import write_training
from paceline.lease.store import LeaseFolder
from paceline.report import RunReader
from paceline.specs import Job, Plan, Run, Saving

POD = "paceline.schedulers.kinds.kubernetes.pod"
SLOW = """
import dataclasses, time
quick = training

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)

def training():
    return dataclasses.replace(quick(), model=lambda: Slow(12, 2), steps=60)
"""


def _run(folder: Path, more: str = "") -> Run:
    train = write_training(folder, more)
    job = Job(name="gpt", train=train, folder=folder, python=Path(sys.executable))
    return Run.create(folder / "runs", job, Plan(saving=Saving(every_steps=50)))


def _pod(run: Run) -> "subprocess.Popen[bytes]":
    own = {
        "JOB_COMPLETION_INDEX": "0",
        "PACELINE_POD_JOB": "gpt-0",
        "PACELINE_POD_NAMESPACE": "team-a",
    }
    return subprocess.Popen([sys.executable, "-m", POD, str(run.path)], env=os.environ | own)


@pytest.mark.slow
def test_a_pod_trains_to_the_end_and_a_late_one_has_nothing_to_do(tmp_path: Path) -> None:
    run = _run(tmp_path)
    assert _pod(run).wait(100) == 0
    state = RunReader(run).refresh()
    assert (state.status, state.step[-1]) == ("finished", 20)
    assert state.ended is not None
    record = LeaseFolder(run.lease).newest()
    assert record is not None
    assert str(record.holder) == "job team-a/gpt-0 of kubernetes"
    assert LeaseFolder(run.lease).is_released(record.term)
    events = [path.read_bytes() for path in sorted(run.events.iterdir())]
    assert _pod(run).wait(100) == 0
    assert [path.read_bytes() for path in sorted(run.events.iterdir())] == events


@pytest.mark.nightly
def test_when_all_pods_have_to_end_they_save_and_the_next_goes_on(tmp_path: Path) -> None:
    """A deleted or suspended job; before, a pod's end was a loss of all since the checkpoint."""
    run = _run(tmp_path, SLOW)
    pod = _pod(run)
    deadline = time.monotonic() + 60
    while not (state := RunReader(run).refresh()).step or state.step[-1] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(60) == 143
    stopped = RunReader(run).refresh()
    assert 0 < stopped.checkpoints[-1].step == stopped.step[-1] < 60
    assert _pod(run).wait(100) == 0
    state = RunReader(run).refresh()
    assert (state.status, state.step[-1]) == ("finished", 60)
    events = [json.loads(line) for path in run.events.iterdir() for line in path.open()]
    resumed = [each["step"] for each in events if each["kind"] == "resumed"]
    assert resumed == [stopped.step[-1]]
