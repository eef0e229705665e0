import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import testbed

NAME = "submit-box"


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The name of a testbed of four nodes with a real Slurm."""
    if NAME in testbed.running():
        testbed.down(NAME)  # from a session that was killed
    testbed.up(testbed.TestbedSpec(name=NAME, nodes=4, link="1gbit"))
    try:
        yield NAME
    finally:
        testbed.down(NAME)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder on a disk, as nodes share one; /tmp may be in memory."""
    with tempfile.TemporaryDirectory(prefix="paceline-test-", dir="/var/tmp") as folder:
        yield Path(folder)
