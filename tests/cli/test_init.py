"""`paceline init` writes a training that runs as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from command import paceline, paceline_json
from full_disk import at_most
from paceline.cli.init.command import init
from paceline.specs import PacelineError

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_training_runs_as_it_is(tmp_path: Path) -> None:
    assert paceline_json("init", folder=tmp_path)["file"] == "train.py"
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 0, alone.stderr
    assert paceline_json("check", "train.py", folder=tmp_path)["same"]
    run = paceline_json("run", "train.py", "-n", "2", folder=tmp_path)
    assert run["status"] == "finished"
    assert run["final_loss"] < 0.5 * run["first_loss"]


def test_the_training_is_written_well(tmp_path: Path) -> None:
    paceline("init", "mine.py", "--quiet", folder=tmp_path)
    ruff = [Path(sys.executable).parent / "ruff"]
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *words, "--config", ROOT / "pyproject.toml", tmp_path / "mine.py"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    said = paceline("init", folder=tmp_path, expect=2).stderr
    assert "train.py cannot be written: File exists" in said
    assert (tmp_path / "train.py").read_text() == "mine"
    assert "No such file" in paceline("init", "no/train.py", folder=tmp_path, expect=2).stderr


def test_a_full_disk_leaves_no_half_of_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    with pytest.raises(PacelineError, match="cannot be written: File too large"), at_most(100):
        init(file)
    assert not file.exists()
    init(file, quiet=True)
