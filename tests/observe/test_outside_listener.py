"""A listener of another package, told of a real run."""

import csv
from pathlib import Path

from command import paceline, write_training
from outside import environment
from paceline.report import RunReader
from paceline.specs import Run


def test_an_outside_listener_is_told_of_a_run(tmp_path: Path) -> None:
    write_training(tmp_path)
    words = ("run", "train.py", "-n", "1", "--to", "csv-file:metrics.csv")
    path = environment("listener")["PYTHONPATH"]
    paceline(*words, folder=tmp_path, PYTHONPATH=path)
    (folder,) = (tmp_path / "runs").iterdir()
    state = RunReader(Run.open(folder)).refresh()
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["name"] == "loss"]
    assert [int(row["step"]) for row in rows] == state.step
    assert [float(row["value"]) for row in rows] == state.loss


def test_without_its_package_it_is_unknown(tmp_path: Path) -> None:
    write_training(tmp_path)
    said = paceline("run", "train.py", "--to", "csv-file", folder=tmp_path, expect=2).stderr
    assert "unknown listener 'csv-file'" in said
    assert not (tmp_path / "runs").exists()
