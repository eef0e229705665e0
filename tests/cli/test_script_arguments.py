"""Arguments of the user's script after `--`, in `run`, its dry run, and `resume`."""

from pathlib import Path

import pytest

from command import BREAKING, paceline, paceline_json, write_training
from paceline.specs import Run

PARSED = """
import argparse, sys

def parsed(training):
    def given():
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, required=True)
        with open("seen", "a") as file:
            print(Path(sys.argv[0]).name, parser.parse_args().lr, file=file)
        return training()
    return given

training = parsed(training)
"""


@pytest.mark.nightly
def test_a_run_and_its_resume_get_the_same_arguments(tmp_path: Path) -> None:
    write_training(tmp_path, BREAKING + PARSED)
    paceline(
        "run", "train.py", "--save-every", "5", "--", "--lr", "3e-4", folder=tmp_path, expect=1
    )
    (run,) = (tmp_path / "runs").iterdir()
    assert Run.open(run).job.arguments == ("--lr", "3e-4")
    (tmp_path / "mended").touch()
    assert paceline_json("resume", run, folder=tmp_path)["status"] == "finished"
    assert (tmp_path / "seen").read_text() == "train.py 0.0003\n" * 2


def test_a_dry_run_gets_them_and_the_usage_shows_them(tmp_path: Path) -> None:
    write_training(tmp_path, "from pathlib import Path" + PARSED)
    paceline("run", "train.py", "--dry-run", "--json", "--", "--lr", "2", folder=tmp_path)
    assert (tmp_path / "seen").read_text() == "train.py 2.0\n"
    assert "[-- ARGS...]" in paceline("run", "--help", folder=tmp_path).stdout


def test_arguments_without_the_dashes_are_refused(tmp_path: Path) -> None:
    write_training(tmp_path)
    assert "unexpected" in paceline("run", "train.py", "3", folder=tmp_path, expect=2).stderr
