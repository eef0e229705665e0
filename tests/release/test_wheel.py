"""The wheel works without the checkout that it was built from."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/try_wheel.py"


def try_wheel(option: str, seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, option],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_quick_start_runs_from_the_wheel() -> None:
    """In an environment that has only the packages of this one."""
    try_wheel("--borrow", 280)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_quick_start_runs_in_a_new_environment() -> None:
    """With all packages from the index, as a user installs them."""
    try_wheel((ROOT / "constraints.txt").read_text().strip(), 850)
