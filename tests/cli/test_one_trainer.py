"""One trainer per run: the second is refused while the first lives, wherever they train."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command import PACELINE, paceline, paceline_json, write_training
from paceline.lease.lease import Lease
from paceline.lease.record import LocalHolder
from paceline.lease.store import LeaseFolder
from paceline.report import RunReader
from paceline.specs import Run

pytestmark = pytest.mark.slow

STEPS = 400
SLOW = f"""
import time, dataclasses, pathlib
quick = training

class Slow(nn.Sequential):
    def forward(self, x):
        time.sleep(0 if pathlib.Path("fast").exists() else 0.1)
        return super().forward(x)

def training():
    return dataclasses.replace(quick(), model=lambda: Slow(nn.Linear(12, 2)), steps={STEPS})
"""


def _wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _run_that_has_saved(folder: Path) -> Run:
    """Wait until the folder's run has committed a checkpoint."""
    _wait_until(
        lambda: any(folder.glob("runs/*/checkpoints/step-*/manifest.json.sha256")),
        "no checkpoint was saved",
    )
    (path,) = (folder / "runs").iterdir()
    return Run.open(path)


@contextmanager
def _trained_here(folder: Path) -> "Iterator[tuple[Run, subprocess.Popen[str]]]":
    write_training(folder, SLOW)
    process = subprocess.Popen(
        [*PACELINE, "run", "train.py", "-n", "1", "--save-every", "5", "--quiet"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _run_that_has_saved(folder), process
    finally:
        process.kill()
        process.communicate()


def _submitted(folder: Path, cluster: str) -> tuple[Run, str]:
    write_training(folder, SLOW)
    submitted = paceline_json(
        *("submit", "train.py", "--save-every", "5", "--testbed", cluster), folder=folder
    )
    return _run_that_has_saved(folder), submitted["job"]


def _refused(run: Run, folder: Path, *words: str) -> str:
    before = (run.path / "job.toml").read_bytes()
    said = paceline("resume", run.path, *words, folder=folder, expect=2).stderr
    assert (run.path / "job.toml").read_bytes() == before
    return said


def _resumes(run: Run, folder: Path, *words: str) -> None:
    (folder / "fast").touch()
    result = paceline_json("resume", run.path, *words, folder=folder)
    assert (result["status"], result["steps"]) == ("finished", STEPS)
    assert result["interruptions"][0]["resumed_step"] >= 5


def _cancel(job: str, cluster: str, folder: Path) -> None:
    """Cancel a job and wait until Slurm has ended it."""
    head = ("testbed", "exec", "head", "--name", cluster, "--")
    paceline(*head, "scancel", job, folder=folder)
    _wait_until(
        lambda: job not in paceline(*head, "squeue", "--noheader", folder=folder).stdout.split(),
        "the job did not end",
    )


def test_trained_here_and_resumed_here(tmp_path: Path) -> None:
    with _trained_here(tmp_path) as (run, process):
        said = _refused(run, tmp_path, "-n", "2")
        assert f"is being trained by process {process.pid} on " in said
        assert f"`kill {process.pid}`" in said
        process.send_signal(signal.SIGKILL)
        process.wait()
        _resumes(run, tmp_path, "-n", "2")


@pytest.mark.nightly
@pytest.mark.slurm
def test_trained_here_and_resumed_on_a_cluster(cluster: str, shared_folder: Path) -> None:
    with _trained_here(shared_folder) as (run, process):
        there = ("--nodes", "1", "--testbed", cluster)
        said = _refused(run, shared_folder, *there)
        assert f"is being trained by process {process.pid} on " in said
        assert not run.job_id_file.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        _resumes(run, shared_folder, *there, "--wait")


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.parametrize("where", ["here", "on the cluster"])
def test_trained_on_a_cluster_and_resumed(cluster: str, shared_folder: Path, where: str) -> None:
    run, job = _submitted(shared_folder, cluster)
    here, there = ("-n", "1"), ("--nodes", "1", "--testbed", cluster)
    try:
        said = _refused(run, shared_folder, *(here if where == "here" else there))
        assert f"the run's job {job} is still running on the testbed {cluster}" in said
        assert f"`scancel {job}`" in said
    finally:
        _cancel(job, cluster, shared_folder)
    _resumes(run, shared_folder, *(here if where == "here" else (*there, "--wait")))


@pytest.mark.slurm
def test_a_job_that_is_pending_holds_its_run(cluster: str, shared_folder: Path) -> None:
    run, job = _submitted(shared_folder, cluster)
    head = ("testbed", "exec", "head", "--name", cluster, "--")
    try:
        paceline(*head, "scontrol", "requeuehold", job, folder=shared_folder)
        pending = f"the run's job {job} is still pending on the testbed {cluster}"
        _wait_until(
            lambda: pending in _refused(run, shared_folder, "-n", "1"), "it was not requeued"
        )
    finally:
        _cancel(job, cluster, shared_folder)


def test_a_trainer_that_was_taken_for_dead_stops_itself(tmp_path: Path) -> None:
    with _trained_here(tmp_path) as (run, process):
        store = LeaseFolder(run.lease)
        other = LocalHolder(host="elsewhere", machine="another", pid=4711, start_ticks=1)
        Lease.take(store, other, lambda record: None)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 2
        assert "it was taken for dead, and process 4711 on elsewhere trains the run now" in said
        assert not run.outcome_file.exists()
        assert RunReader(run).refresh().ended is None  # the run goes on, elsewhere
