"""A job that waits in the queue runs the code that was submitted. Before, it ran `train.py` as it
was when the job started."""

from pathlib import Path

import pytest

from command import paceline, paceline_json, write_training

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

OWN = """
import steps
whole = training

def training():
    import dataclasses
    return dataclasses.replace(whole(), steps=steps.STEPS)
"""


def test_an_edit_changes_nothing_for_a_job_that_waits(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, OWN)
    (shared_folder / "steps.py").write_text("STEPS = 7\n")
    job = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--testbed", cluster),
        *("--scheduler-option", "--hold"),
        folder=shared_folder,
    )
    (shared_folder / "train.py").write_text("raise ValueError('half-written')\n")
    (shared_folder / "steps.py").write_text("STEPS = 9\n")
    paceline(
        *("testbed", "exec", "head", "--name", cluster, "--", "scontrol", "release", job["job"]),
        folder=shared_folder,
    )
    (run,) = (shared_folder / "runs").iterdir()
    paceline("watch", run, folder=shared_folder)
    result = paceline_json("report", run, folder=shared_folder)
    assert (result["status"], result["steps"]) == ("finished", 7)
