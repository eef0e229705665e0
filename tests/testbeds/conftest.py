from collections.abc import Iterator

import pytest

from paceline import testbed
from paceline.testbed.state_folder import state_folder
from testbeds.boxes import SHARED, traces_of, wait_until


@pytest.fixture(scope="session")
def box() -> Iterator[str]:
    """The name of a testbed of four nodes at 200 Mbit/s, shared by all tests that leave it well."""
    if state_folder(SHARED).exists():
        testbed.down(SHARED)  # from a session that was killed
    testbed.up(testbed.TestbedSpec(name=SHARED, nodes=4, link="200mbit"))
    try:
        yield SHARED
    finally:
        while_up = traces_of(SHARED)
        testbed.down(SHARED)
        wait_until(lambda: traces_of(SHARED).is_nothing_left(while_up), "nothing is left")
