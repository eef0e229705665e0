"""The process beside each worker of a job."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paceline.schedulers.task import exit_code

WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def worker() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that waits until its input ends."""
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_worker_that_hangs_ends_after_the_training(worker: "subprocess.Popen[bytes]") -> None:
    """Before, the job of a stopped worker lasted until its time limit."""
    os.kill(worker.pid, signal.SIGSTOP)
    looks = iter([False, False, True])
    assert exit_code(worker, lambda: next(looks, True), seconds=0.01) == -signal.SIGKILL
    assert next(looks, None) is None


def test_a_worker_has_time_to_end_by_itself(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdin is not None
    stdin = worker.stdin

    def over() -> bool:
        stdin.close()
        return True

    assert exit_code(worker, over, seconds=1.0) == 0
