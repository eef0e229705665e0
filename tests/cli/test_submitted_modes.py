"""Who can read or write a testbed and the runs of its jobs, whatever the umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import paceline_json, write_training
from file_modes import modes, umask, with_bits
from paceline import testbed
from paceline.testbed.state_folder import state_folder
from testbeds.boxes import traces_of, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(params=[0o000, 0o002], ids=["umask 0", "umask 2"])
def box(request: pytest.FixtureRequest) -> Iterator[str]:
    """A testbed of two nodes that was brought up, and is used, under an open umask."""
    name = f"modes-{os.getpid()}"
    with umask(request.param):
        testbed.up(testbed.TestbedSpec(name=name, nodes=2))
        try:
            yield name
        finally:
            testbed.down(name)
            wait_until(lambda: traces_of(name).is_nothing_left(), "nothing is left")


@pytest.mark.nightly
def test_a_testbed_and_its_jobs_are_the_users_alone(box: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    result = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--save-every", "5", "--ledger"),
        *("--testbed", box, "--wait"),
        folder=shared_folder,
    )
    assert result["status"] == "finished"
    (run,) = (shared_folder / "runs").iterdir()
    assert with_bits(0o077, run) == {}
    assert {"job.toml", "ledger", "secret"} <= modes(run).keys()
    state = modes(state_folder(box).path)
    assert state.pop(".") == 0o700
    assert len(state) > 5
    assert not any(mode & 0o022 for mode in state.values())  # slurmd opens its own folders to read
