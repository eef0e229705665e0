"""A scheduler of another package: it is found by its entry point, and its scripts are golden.

PBS cannot run here: these tests show the seam and the script, not that PBS takes the script.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import write_training
from outside import environment, installed
from paceline.schedulers.scheduler import Scheduler
from paceline.specs import Allocation, Faults, Job, JobEnvironment, Limits, PacelineError, Run

GOLDEN = Path(__file__).parent / "golden"
JOB = Job(
    name="gpt",
    train=Path("/home/ann/gpt/train.py"),
    nodes=2,
    cpus_per_worker=8,
    scheduler="pbs",
    folder=Path("/home/ann/gpt"),
    python=Path("/home/ann/env/bin/python"),
)
GPU = JOB.model_copy(
    update={
        "name": "my run",
        "devices_per_node": 4,
        "gpus_per_node": 4,
        "spares": 1,
        "partition": "gpuq",
        "limits": Limits(minutes=90, memory_megabytes=65536),
        "folder": Path("/home/ann/my models"),
    }
)


@pytest.fixture
def pbs(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.syspath_prepend(str(installed("scheduler")))
    found: Scheduler = importlib.import_module("paceline_pbs").SCHEDULER
    return found


@pytest.mark.parametrize(
    ("name", "job", "faults"), [("cpu", JOB, Faults(regroup=False)), ("gpu", GPU, Faults())]
)
def test_golden_script(pbs: Scheduler, name: str, job: Job, faults: Faults) -> None:
    """Renew: `PACELINE_RENEW=1 pytest tests/schedulers/test_pbs.py`; read the diff."""
    written = pbs.script(job, Run(Path(f"/home/ann/runs/{job.name}-20260101-120000")), faults)
    golden = GOLDEN / f"{name}.pbs"
    if os.environ.get("PACELINE_RENEW"):
        golden.write_text(written)
    assert written == golden.read_text(), test_golden_script.__doc__
    subprocess.run(["bash", "-n"], input=written, text=True, check=True)


def test_a_task_knows_its_rank(pbs: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pbs.task() is None
    for name, value in {"RANK": 5, "TASKS": 8, "NODES": 2}.items():
        monkeypatch.setenv(f"PACELINE_PBS_{name}", str(value))
    task = pbs.task()
    assert task is not None
    assert (task.rank, task.tasks, task.local_rank, task.nodes) == (5, 8, 1, 2)


def _paceline(*words: str, folder: Path, plugin: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "paceline", *words],
        cwd=folder,
        env=environment(*(["scheduler"] if plugin else [])),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_dry_run_prints_its_script(tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("submit", "train.py", "--nodes", "2", "--dry-run", "--assume-shared")
    done = _paceline(*words, "--scheduler", "pbs", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "#PBS -l select=2:ncpus=1:mpiprocs=1\n" in done.stdout
    assert "PBS is not reachable: there is no command pbsnodes" in done.stderr
    assert "the site's limits are not checked" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_without_the_package_the_scheduler_is_unknown(tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("submit", "train.py", "--dry-run", "--scheduler", "pbs")
    done = _paceline(*words, folder=tmp_path, plugin=False)
    assert done.returncode == 2
    assert "unknown scheduler 'pbs'" in done.stderr
    assert "slurm" in done.stderr


def test_submit_needs_a_scheduler_that_answers(tmp_path: Path) -> None:
    write_training(tmp_path)
    done = _paceline("submit", "train.py", "--scheduler", "pbs", folder=tmp_path)
    assert done.returncode == 2
    assert "PBS is not reachable: there is no command qstat" in done.stderr


def test_the_doctor_lists_it(tmp_path: Path) -> None:
    done = _paceline("doctor", folder=tmp_path)
    assert "pbs " in done.stdout
    assert "slurm " in done.stdout


def test_what_its_script_does_not_say_is_refused(pbs: Scheduler) -> None:
    assert pbs.options(Allocation()) == []
    with pytest.raises(PacelineError, match="account, exclusive was given for the job"):
        pbs.options(Allocation(account="phys", exclusive=True))
    job = JOB.model_copy(update={"environment": JobEnvironment(setup=("module load cuda",))})
    with pytest.raises(PacelineError, match="an environment was given for the job"):
        pbs.script(job, Run(Path("/home/ann/runs/gpt")), Faults())
