"""Builds the simulated device once per session."""

import os
from pathlib import Path

import pytest

from paceline_simulated import build

_BUILD_SECONDS = 900
"""On a machine that others share; alone, it takes about a minute."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these tests to CI where the device is not built yet: `make check` stays quick."""
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    built = bool(mine) and build.is_built()
    for item in mine:
        item.add_marker(pytest.mark.timeout(_BUILD_SECONDS))
        if not built:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    why = build.why_not()
    if why and os.environ.get("PACELINE_TEST_ALL"):
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)
    build.library()
