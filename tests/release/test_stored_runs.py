"""Runs that earlier versions left are read, reported and resumed.

`stored/VERSION` is the folder of a run that VERSION trained on two workers and left after 60 of 120
steps, without its secret, and with another place of the user's files.
"""

import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import paceline, paceline_json

STORED = sorted((Path(__file__).parent / "stored").iterdir())
USERS_FOLDER, USERS_PYTHON = "/home/ada/spiral", "/home/ada/venv/bin/python3"


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy that belongs to this user and starts this Python."""
    folder = tmp_path / "runs" / "spiral"
    shutil.copytree(request.param, folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    (folder / "secret").touch(0o600)
    (folder / "secret").write_text(secrets.token_hex(32))
    settings = (folder / "job.toml").read_text()
    assert USERS_FOLDER in settings
    assert USERS_PYTHON in settings
    settings = settings.replace(USERS_FOLDER, str(tmp_path)).replace(USERS_PYTHON, sys.executable)
    (folder / "job.toml").write_text(settings)
    return folder


def test_it_is_reported(run: Path, tmp_path: Path) -> None:
    found = paceline_json("report", run, folder=tmp_path)
    assert (found["status"], found["steps"], found["planned_steps"]) == ("stopped", 60, 120)
    assert (found["samples"], found["workers"]) == (1800, 2)
    paceline("report", run, "-o", "page.html", folder=tmp_path)
    assert "Stopped early at 60 of 120 steps" in (tmp_path / "page.html").read_text()


def test_its_samples_are_counted(run: Path, tmp_path: Path) -> None:
    found = paceline_json("ledger", run, folder=tmp_path)
    assert found["exact"]
    assert [(each["steps"], each["once"]) for each in found["epochs"]] == [(12, 360)] * 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_resumed_as_if_one_version_had_trained_it(run: Path, tmp_path: Path) -> None:
    """On another number of workers, to the loss of a training without an interruption."""
    paceline("resume", run, "-n", "1", folder=tmp_path, seconds=200)
    found = paceline_json("report", run, folder=tmp_path)
    assert (found["status"], found["steps"], found["samples"]) == ("finished", 120, 3600)
    program = (
        f"import json, sys; sys.path.insert(0, {str(run / 'code/0/spiral')!r})\n"
        "import paceline, train; print(json.dumps(paceline.fit(train.training()).loss))"
    )
    whole = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert found["final_loss"] == pytest.approx(json.loads(whole.stdout), rel=1e-5)
    ledger = paceline_json("ledger", run, folder=tmp_path)
    assert [each["once"] for each in ledger["epochs"]] == [360] * 10
