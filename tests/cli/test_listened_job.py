"""`paceline submit --to`: the follower beside a job, on the node that runs its script."""

import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from command import paceline, paceline_json, write_training

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.mark.nightly
def test_a_job_is_listened_to_until_its_end(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    words = ("submit", "train.py", "--nodes", "2", "--testbed", cluster, "--wait")
    to = ("--to", "tensorboard:boards", "--to", "prometheus:lo:0")
    result = paceline_json(*words, *to, folder=shared_folder)
    assert result["status"] == "finished"
    (run,) = (shared_folder / "runs").iterdir()
    looking = ("testbed", "exec", "n1", "--name", cluster, "--", "ps", "axww")
    deadline = time.monotonic() + 30
    while f"watch {run}" in paceline(*looking, folder=shared_folder).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    (board,) = (shared_folder / "boards").iterdir()
    found = EventAccumulator(str(board)).Reload()
    assert [each.step for each in found.Scalars("loss")] == list(range(1, 21))
    log = (run / "logs" / "listeners.log").read_text()
    assert "http://127.0.0.1:" in log
    assert "failed" not in log
