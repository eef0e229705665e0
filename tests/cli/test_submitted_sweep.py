"""`paceline submit --array`: a run for each row of a table."""

from pathlib import Path

import pytest

from command import paceline, paceline_json, write_training

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

BY_ARGUMENT = """
import argparse, dataclasses
fixed = training

def training():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=given.lr)
    return dataclasses.replace(fixed(), optimizer=optimizer, steps=given.steps)
"""


@pytest.mark.nightly
def test_each_row_is_a_run_of_its_own(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, BY_ARGUMENT)
    (shared_folder / "sweep.csv").write_text("lr,steps\n0.1,\n0.01,8\n")
    words = ("submit", "train.py", "--testbed", cluster, "--name", "sweep", "--wait")
    swept = paceline_json(*words, "--array", "sweep.csv", folder=shared_folder)["runs"]
    assert [each["arguments"] for each in swept] == [
        ["--lr", "0.1"],
        ["--lr", "0.01", "--steps", "8"],
    ]
    assert [(each["status"], each["steps"]) for each in swept] == [
        ("finished", 20),
        ("finished", 8),
    ]
    assert [Path(each["run"]).name[:8] for each in swept] == ["sweep-1-", "sweep-2-"]
    assert len({each["job"] for each in swept}) == 2
    assert swept[0]["final_loss"] < swept[1]["final_loss"]


@pytest.mark.nightly
def test_a_run_that_fails_does_not_stop_the_others(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, BY_ARGUMENT)
    (shared_folder / "sweep.csv").write_text("lr\nfast\n0.1\n")
    words = ("submit", "train.py", "--testbed", cluster, "--name", "sweep", "--wait")
    said = paceline(*words, "--array", "sweep.csv", folder=shared_folder, expect=1).stderr
    assert "2 runs, one job each" in said
    assert ": failed, 0 steps, final loss -" in said
    assert ": finished, 20 steps" in said
    assert "next: paceline report runs/sweep-1-" in said
