"""The copy of the user's code in the run folder. Before, workers imported the user's own file, as
it was when they happened to start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import BREAKING, paceline, write_training
from paceline.jobs.code_files import MOST_FILE_BYTES, find_code
from paceline.jobs.code_snapshot import has_changed, with_snapshot
from paceline.specs import CodeSnapshot, Job, Plan, Run

OWN = """
import json, os, sys
from pathlib import Path
import settings
from model.layers import WIDTH
from beside import NAME

def training_again():
    print("seen", json.dumps({
        "width": WIDTH,
        "rate": settings.RATE,
        "beside": NAME,
        "data": (Path(__file__).parent / "data" / "corpus.txt").read_text(),
        "above": (Path(__file__).parent.parent / "common.txt").read_text(),
        "relative": Path("here.txt").read_text(),
        "cwd": os.getcwd(),
        "argv": sys.argv[1:],
    }))
    return training()
"""
"""More of a train.py: it imports a module and packages beside it, and reads data in three ways."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A training in a git repository, with packages, data, a secret, an environment and runs."""
    folder = tmp_path / "repository" / "gpt"
    for name in ("model", "data", ".venv", "env", "lib", "runs/gpt-1"):
        (folder / name).mkdir(parents=True)
    write_training(folder, OWN)
    written = {
        "settings.py": "RATE = 1\n",
        "model/__init__.py": "",
        "model/layers.py": "WIDTH = 1\n",
        "lib/beside.py": "NAME = 'old'\n",
        "gpt.toml": "layers = 2\n",
        "data/corpus.txt": "words",
        "../common.txt": "common",
        "here.txt": "here",
        ".env": "SECRET=1",
        "secrets.yaml": "key: 1",
        "env/pyvenv.cfg": "",
        "env/module.py": "",
        ".venv/hidden.py": "",
        "runs/gpt-1/job.toml": "",
        "huge.py": "#" * (MOST_FILE_BYTES + 1),
    }
    for name, text in written.items():
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *words: str) -> None:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        env=os.environ | identity,
    )


def new_run(project: Path) -> tuple[Run, Job]:
    job = Job(
        name="gpt",
        train=project / "train.py",
        function="training_again",
        arguments=("--size", "3"),
        folder=project,
        python=Path(sys.executable),
    )
    run = Run.create(project / "runs", job, Plan())
    job = with_snapshot(run, job)
    run.write_job(job)
    return run, job


def test_code_is_copied_but_neither_secrets_nor_data(project: Path) -> None:
    found = find_code(project / "train.py")
    assert {str(name) for name in found.files} == {
        *("train.py", "settings.py", "model/__init__.py", "model/layers.py"),
        *("lib/beside.py", "gpt.toml"),
    }
    assert found.left_out == ["huge.py"]


def test_the_record_has_commit_and_diff(project: Path) -> None:
    git(project.parent, "init", "-q")
    git(project.parent, "add", "gpt/settings.py", "gpt/secrets.yaml")
    git(project.parent, "commit", "-q", "-m", "first")
    (project / "settings.py").write_text("RATE = 2\n")
    (project / "secrets.yaml").write_text("key: 2")
    run, job = new_run(project)
    assert job.code == Path("code/0/gpt/train.py")
    record = CodeSnapshot.read(run.code / "0.toml")
    assert record.commit is not None
    assert len(record.commit) == 40
    assert record.changed
    diff = (run.code / "0.diff").read_text()
    assert "+RATE = 2" in diff
    assert "key" not in diff
    Run.open(run.path, deep=True)  # nobody else can write it
    copy = run.path / job.code
    assert not copy.is_symlink()
    assert (copy.parent / "data").is_symlink()
    assert (copy.parent / "secrets.yaml").is_symlink()
    assert not (copy.parent / "runs").exists()  # it holds the run, so a link would be a circle
    assert not has_changed(run, job)
    (project / "model" / "layers.py").write_text("WIDTH = 2\n")
    assert has_changed(run, job)


def test_a_moved_folder_of_runs_takes_its_links_along(project: Path, tmp_path: Path) -> None:
    """Links were absolute, and led nowhere once the folder had another name."""
    job = Job(name="gpt", train=project / "train.py", folder=project, python=Path(sys.executable))
    run = Run.create(project, job, Plan())  # --runs .
    copies = (run.path / str(with_snapshot(run, job).code)).parent
    assert (copies / "data").readlink() == Path("../../../../data")
    assert (copies.parent / "common.txt").readlink() == project.parent / "common.txt"
    moved = project.rename(project.with_name("moved"))
    assert (moved / copies.relative_to(project) / "data" / "corpus.txt").read_text() == "words"


SEEN = '"width": 1, "rate": 1, "beside": "old", "data": "words", "above": "common"'


def edit(project: Path) -> None:
    (project / "train.py").write_text("raise ValueError('half-written')")
    (project / "model" / "layers.py").write_text("WIDTH = 2\n")
    (project / "lib" / "beside.py").write_text("NAME = 'new'\n")


def modules_of(project: Path) -> str:
    return f"{project / 'lib'}:{os.environ.get('PYTHONPATH', '')}"


def test_a_run_that_waits_trains_with_the_code_of_its_start(project: Path) -> None:
    run, _ = new_run(project)
    edit(project)
    said = paceline("resume", run.path, folder=project, PYTHONPATH=modules_of(project)).stderr
    assert "goes on with the code that it was started with; --new-code takes" in said
    assert SEEN in logged(run.path)
    assert f'"relative": "here", "cwd": "{project}", "argv": ["--size", "3"]' in logged(run.path)
    assert not list(run.path.rglob("__pycache__"))


@pytest.mark.nightly
def test_a_resumed_run_takes_new_code_if_asked(project: Path) -> None:
    write_training(project, BREAKING + OWN)
    words = ("run", "train.py:training_again", "--save-every", "5", "-n", "1", "--name", "copied")
    modules = modules_of(project)
    paceline(*words, folder=project, expect=1, PYTHONPATH=modules)
    (run,) = (project / "runs").glob("copied-*")
    assert SEEN in logged(run)
    (project / "model" / "layers.py").write_text("WIDTH = 2\n")
    (project / "mended").touch()
    paceline("resume", run, "--new-code", folder=project, PYTHONPATH=modules)
    assert '"width": 2, "rate": 1' in logged(run)


def logged(run: Path) -> str:
    return "".join(path.read_text() for path in (run / "logs").glob("*.log"))
