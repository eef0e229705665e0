import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from paceline import testbed
from paceline.specs.errors import PacelineError
from paceline.testbed.commands import holders_of
from paceline.testbed.state_folder import state_folder
from testbeds.boxes import run_in, started_in, traces_of, wait_until

pytestmark = pytest.mark.slurm

UP = """
from paceline import testbed
from paceline.testbed.startup import HolderStart

keep = HolderStart.keep
HolderStart.keep = lambda start: (print("keeping", flush=True), keep(start))
testbed.up(testbed.TestbedSpec(name={!r}, nodes=3, delay="5ms"))
"""


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a testbed that the test brings up; it is down afterwards, whatever happens."""
    chosen = f"test-{os.getpid()}"
    yield chosen
    if state_folder(chosen).exists():
        testbed.down(chosen)
    wait_until(lambda: traces_of(chosen).is_nothing_left(), "nothing is left")


def test_four_nodes_run_a_job_and_leave_nothing(name: str) -> None:
    progress: list[str] = []
    started = time.monotonic()
    status = testbed.up(testbed.TestbedSpec(name=name, nodes=4), on_progress=progress.append)
    seconds = time.monotonic() - started
    print(f"4 nodes were up in {seconds:.2f} s")
    assert seconds < 20
    assert progress[-1] == "4 of 4 nodes are idle"
    assert [node.slurm_state for node in status.nodes] == ["idle"] * 4
    assert status.to_dict()["nodes"][3]["address"] == "10.77.0.14"
    assert name in testbed.running()
    hosts = run_in(name, "head", "srun", "-N4", "hostname").split()
    assert sorted(hosts) == ["n1", "n2", "n3", "n4"]

    while_up = traces_of(name)
    assert len(while_up.processes) > 10
    assert len(while_up.namespaces) == 5 * 4  # head and nodes: network, mounts, names, processes
    testbed.down(name)
    wait_until(lambda: traces_of(name).is_nothing_left(while_up), "nothing is left")
    assert name not in testbed.running()


def test_two_side_by_side(name: str, box: str) -> None:
    testbed.up(testbed.TestbedSpec(name=name, nodes=1))
    assert {name, box} <= set(testbed.running())
    assert run_in(name, "head", "srun", "hostname").split() == ["n1"]
    assert len(run_in(box, "head", "srun", "-N4", "hostname").split()) == 4
    testbed.down(name)
    assert testbed.status(box).nodes[0].slurm_state == "idle"


def test_up_twice_is_refused_and_harms_nothing(box: str) -> None:
    with pytest.raises(
        PacelineError, match=rf"{box}.*is up already(.|\n)*testbed down --name {box}"
    ):
        testbed.up(testbed.TestbedSpec(name=box))
    assert testbed.status(box).nodes[0].state == "up"


@pytest.fixture(scope="module")
def start_seconds() -> float:
    """How long a holder takes at present until it would be kept."""
    name = f"timed-{os.getpid()}"
    started = time.monotonic()
    testbed.up(testbed.TestbedSpec(name=name, nodes=3, delay="5ms"))
    seconds = time.monotonic() - started
    testbed.down(name)
    return seconds


@pytest.mark.parametrize("part_of_start", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_an_up_that_is_killed_leaves_nothing_running(
    name: str, part_of_start: float, start_seconds: float
) -> None:
    up = subprocess.Popen([sys.executable, "-c", UP.format(name)], stdout=subprocess.PIPE)
    state = state_folder(name)
    wait_until(lambda: up.poll() is not None or bool(holders_of(state.path)), "it starts")
    time.sleep((part_of_start + random.uniform(0, 0.2)) * start_seconds)
    up.send_signal(signal.SIGKILL)
    if up.communicate()[0]:
        return  # the kill came when it was up
    wait_until(lambda: not traces_of(name).processes, "all processes are gone", seconds=5)
    assert name not in testbed.running()
    with pytest.raises(PacelineError, match=rf"interrupted(.|\n)*down --name {name}"):
        testbed.status(name)
    testbed.down(name)


def test_down_at_once_after_a_killed_up_and_up_again(name: str) -> None:
    up = subprocess.Popen([sys.executable, "-c", UP.format(name)])
    wait_until(state_folder(name).socket.exists, "the holder answers")
    up.kill()
    up.wait()
    testbed.down(name)
    assert not state_folder(name).exists()
    assert testbed.up(testbed.TestbedSpec(name=name, nodes=1)).nodes[0].slurm_state == "idle"


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path_factory.mktemp("programs")
    broken = programs / "slurmctld"
    broken.write_text("#!/bin/sh\necho fatal: the disk is on fire >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(PacelineError, match=r"slurmctld\.log:\n  fatal: the disk is on fire"):
        testbed.up(testbed.TestbedSpec(name=name, nodes=1))
    assert not state_folder(name).exists()


def test_commands_on_a_testbed_that_is_not_there() -> None:
    for ask in (testbed.status, testbed.down, testbed.command_prefix, testbed.environment):
        with pytest.raises(PacelineError, match=r"no testbed 'nowhere'(.|\n)*up --name nowhere"):
            ask("nowhere")


def test_ending_the_prefix_ends_the_command(box: str) -> None:
    with started_in(box, "n1", "sleep", "1234.5"):
        wait_until(lambda: "sleep 1234.5" in run_in(box, "n1", "ps", "ax"), "it runs")
    wait_until(lambda: "sleep 1234.5" not in run_in(box, "n1", "ps", "ax"), "it is gone")
