"""Who can write, or read, the files of a run, a study, an export and a testbed."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from command import BREAKING, paceline, paceline_json, write_training
from file_modes import modes, umask, with_bits
from paceline.membership.rendezvous.address_files import secret_of
from paceline.peers.memory_file import MemoryFile
from paceline.specs import PacelineError, Run
from paceline.specs.owned_files import make_folder, open_owned, write_owned
from ranks import new_run

pytestmark = pytest.mark.slow

OTHER_USER = 65534

MORE = (
    BREAKING
    + """
def exporting():
    with paceline.start(whole()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export("model.safetensors")
"""
)
"""A training that fails after ten steps until it is mended, and one that exports its weights."""


@pytest.mark.parametrize("mask", [0o000, pytest.param(0o002, marks=pytest.mark.nightly)])
def test_a_run_and_its_resume_are_the_users_alone(mask: int, tmp_path: Path) -> None:
    """With checkpoints, peer copies, a ledger, a trace and a listener."""
    write_training(tmp_path, MORE)
    with umask(mask):
        paceline(
            *("run", "train.py", "-n", "2", "--save-every", "5", "--ledger", "--trace", "2"),
            *("--to", "tensorboard", "--faults", "copy_every=2", "--checkpoints", "elsewhere"),
            folder=tmp_path,
            expect=1,
        )
        (tmp_path / "mended").touch()
        (run,) = (tmp_path / "runs").iterdir()
        paceline("resume", run, folder=tmp_path)
    assert with_bits(0o077, run) == {}
    assert {"ledger", "trace", "tensorboard", "versions.toml", "outcome"} <= modes(run).keys()
    (checkpoints,) = (tmp_path / "elsewhere").iterdir()
    assert with_bits(0o077, checkpoints) == {}
    assert len(modes(checkpoints)) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_a_shared_run_can_be_read_by_the_group(mask: int, tmp_path: Path) -> None:
    write_training(tmp_path, MORE)
    with umask(mask):
        paceline("run", "train.py", "--save-every", "5", "--share", folder=tmp_path, expect=1)
        (tmp_path / "mended").touch()
        (run,) = (tmp_path / "runs").iterdir()
        paceline("resume", run, folder=tmp_path)
    found = modes(run)
    assert with_bits(0o027, run) == {}
    assert {name for name, mode in found.items() if not mode & 0o040} == {"secret"}
    assert {name for name, mode in found.items() if mode & 0o010} == {
        str(path.relative_to(run))
        for path in (run, *run.rglob("*/"))
        if path.is_dir() and not path.is_symlink()
    }


@pytest.mark.parametrize("mask", [0o002, pytest.param(0o077, marks=pytest.mark.nightly)])
def test_an_export_follows_the_umask(mask: int, tmp_path: Path) -> None:
    """It is what the user has made, for whom the user says; the run stays private."""
    write_training(tmp_path, MORE)
    with umask(mask):
        paceline("run", "train.py:exporting", folder=tmp_path)
    for name in ("model.json", "model.safetensors"):
        assert modes(tmp_path)[name] == 0o666 & ~mask


@pytest.mark.nightly
def test_a_study_is_the_users_alone(tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("study", "train.py", "-n", "1", "--steps", "4", "--warm-up", "1", "--repeat", "1")
    with umask(0o000):
        paceline(*words, "--out", "study", folder=tmp_path)
    assert with_bits(0o077, tmp_path / "study") == {}
    (tmp_path / "study" / "study.toml").chmod(0o664)
    said = paceline(*words, "--out", "study", folder=tmp_path, expect=2).stderr
    assert f"chmod -R go-w {tmp_path / 'study'}" in said


def test_a_copy_in_memory_is_the_users_alone() -> None:
    assert stat.S_IMODE(MemoryFile(8).path.stat().st_mode) == 0o600


EVIL = "#!/bin/sh\ntouch {}/ran\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that was cut off before its first step, and a program in the place of its Python."""
    made = new_run(tmp_path, workers=1)
    evil = tmp_path / "evil.sh"
    evil.write_text(EVIL.format(tmp_path))
    evil.chmod(0o755)
    made.write_job(made.job.model_copy(update={"python": evil}))
    return made


def refusal(run: Run, tmp_path: Path) -> str:
    said = paceline("resume", run.path, folder=tmp_path, expect=2).stderr
    assert not (tmp_path / "ran").exists()
    return " ".join(said.split())


def test_what_a_job_names_is_run(run: Run, tmp_path: Path) -> None:
    """The control: the same program in a job that only its owner can write."""
    paceline("resume", run.path, folder=tmp_path, expect=1)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_a_job_that_others_can_write_is_not_followed(run: Run, mode: int, tmp_path: Path) -> None:
    run.job_file.chmod(mode)
    said = refusal(run, tmp_path)
    assert f"other users can write {run.job_file} (mode {mode:04o})" in said
    assert f"chmod -R go-w {run.path}" in said
    subprocess.run(["chmod", "-R", "go-w", run.path], check=True)
    assert Run.open(run.path, deep=True).job.python == tmp_path / "evil.sh"


@pytest.mark.parametrize("name", [".", "plan.toml", "rendezvous", "checkpoints/step-0000000005/x"])
def test_nothing_that_others_can_write_is_followed(run: Run, name: str, tmp_path: Path) -> None:
    path = run.path / name
    if not path.exists():
        path.parent.mkdir(parents=True)
        path.touch()
    path.chmod(path.stat().st_mode | 0o020)
    assert "other users can write" in refusal(run, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["job.toml", ".", "secret"])
def test_nothing_that_belongs_to_another_is_followed(run: Run, name: str, tmp_path: Path) -> None:
    os.chown(run.path / name, OTHER_USER, -1)
    said = refusal(run, tmp_path)
    assert "belongs to nobody, and you are root" in said
    assert f"chown -R root {run.path}" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_that_is_swapped_after_the_check_is_not_followed(run: Run) -> None:
    """Whoever can write to the parent folder can put another folder in the place of the run's."""
    opened = Run.open(run.path)
    os.chown(run.job_file, OTHER_USER, -1)
    with pytest.raises(PacelineError, match="belongs to nobody"):
        _ = opened.job
    os.chown(run.secret_file, OTHER_USER, -1)
    with pytest.raises(PacelineError, match="belongs to nobody"):
        secret_of(opened)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_run_of_another_can_be_looked_at(run: Run, tmp_path: Path) -> None:
    for path in (run.path, *run.path.rglob("*")):
        os.chown(path, OTHER_USER, -1)
    assert paceline_json("watch", run.path, folder=tmp_path)["status"]


def test_a_folder_keeps_the_group_of_a_project(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    make_folder(tmp_path / "run", share=True)
    make_folder(tmp_path / "run" / "events")
    assert modes(tmp_path) == {".": 0o2775, "run": 0o2750, "run/events": 0o2750}


def test_links_are_replaced_or_refused(tmp_path: Path) -> None:
    target, link = tmp_path / "bashrc", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        open_owned(link, "a")
    write_owned(link, "new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("mine", "new", False)
