"""A training that stands still is interrupted; one that computes, or has nothing to do, is not."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from paceline.cluster.process import compute_seconds
from paceline.train.elastic.watchdog import Watchdog

SECONDS = 0.3


class Watched:
    """A watchdog, and whether it has barked."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        self.dog = Watchdog(SECONDS, self.interrupted.set, compute_seconds)


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.dog.close()


def test_nothing_happens(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    watched.dog.moved()
    began = time.monotonic()
    assert watched.interrupted.wait(20)
    assert time.monotonic() - began > SECONDS
    assert "no step and no work for" in capsys.readouterr().err


def test_it_says_so_once(watched: Watched) -> None:
    watched.dog.moved()
    assert watched.interrupted.wait(20)
    watched.interrupted.clear()
    assert not watched.interrupted.wait(2 * SECONDS)


@pytest.mark.alone
def test_a_long_step_computes(watched: Watched) -> None:
    watched.dog.moved()
    end = time.monotonic() + 3 * SECONDS
    while time.monotonic() < end:
        pass
    assert not watched.interrupted.is_set()


def test_who_waits_for_a_place_rests(watched: Watched) -> None:
    watched.dog.moved()
    watched.dog.rest()
    assert not watched.interrupted.wait(3 * SECONDS)


STOPPED = """
import threading, time
from paceline.cluster.process import compute_seconds
from paceline.train.elastic.watchdog import Watchdog

interrupted = threading.Event()
dog = Watchdog(1.0, interrupted.set, compute_seconds)
dog.moved()
print("moved", flush=True)
{then}
print(interrupted.is_set())
"""
STEPS = """
for _ in range(4):
    time.sleep(0.1)
for _ in range(20):
    dog.moved()
    time.sleep(0.05)
"""
A_LONG_STEP = """
for _ in range(20):
    end = time.thread_time() + 0.03
    while time.thread_time() < end:
        pass
    time.sleep(0.07)
"""


@pytest.mark.alone
@pytest.mark.parametrize("then", [STEPS, A_LONG_STEP], ids=["steps", "a long step"])
def test_a_process_that_was_stopped_is_not_stuck(then: str) -> None:
    """By a scheduler, which suspends a job for another."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(then=then)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "moved\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "False\n"


@pytest.mark.alone
def test_steps_are_taken(watched: Watched) -> None:
    for _ in range(10):
        watched.dog.moved()
        assert not watched.interrupted.wait(SECONDS / 3)
