import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paceline import testbed
from paceline.specs.errors import PacelineError
from testbeds.boxes import run_in, slurm_state, started_in, wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def all_nodes_run(box: str) -> Iterator[None]:
    """Also after a test that failed: it is tried again, and others share the testbed."""
    yield
    for node in testbed.status(box).nodes:
        if node.state == "down":
            with suppress(PacelineError):  # it has power; only Slurm has not heard from it yet
                testbed.start(box, node.name)


def test_a_power_cut_ends_everything_in_the_node_and_start_brings_it_back(box: str) -> None:
    with started_in(box, "head", "srun", "--nodelist=n3", "sleep", "4321.5") as job:
        wait_until(lambda: _sleepers() != [], "the job runs")
        testbed.stop(box, "n3")
        wait_until(lambda: _sleepers() == [], "the job's processes are gone", seconds=1)
        assert testbed.status(box).nodes[2].state == "down"
        with pytest.raises(PacelineError, match=r"n3 is stopped(.|\n)*start n3"):
            testbed.command_prefix(box, "n3")
        with pytest.raises(PacelineError, match="n3 is stopped"):
            testbed.link(box, "n3", rate="1gbit")
        testbed.start(box, "n3")
        job.wait(timeout=30)
    wait_until(lambda: slurm_state(box, "n3") == "idle", "n3 is idle")
    hosts = run_in(box, "head", "srun", "-N4", "hostname").split()
    assert sorted(hosts) == ["n1", "n2", "n3", "n4"]
    assert "200Mbit" in run_in(box, "n3", "tc", "qdisc", "show", "dev", "eth0")


def _sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *arguments = path.read_bytes().rstrip(b"\0").split(b"\0")
            if program.endswith(b"sleep") and arguments == [b"4321.5"]:
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_starting_what_runs_and_stopping_what_is_stopped_are_refused(box: str) -> None:
    with pytest.raises(PacelineError, match="n4 is running already"):
        testbed.start(box, "n4")
    testbed.stop(box, "n4")
    with pytest.raises(PacelineError, match="n4 is stopped"):
        testbed.stop(box, "n4")
    testbed.start(box, "n4")
    assert slurm_state(box, "n4") == "idle"


def test_nodes_share_cores_and_have_own_shared_memory(box: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    status = testbed.status(box)
    assert {core for node in status.nodes for core in node.cores} <= set(cores)
    for node in status.nodes:
        assert int(run_in(box, "head", "srun", f"-w{node.name}", "nproc")) == len(node.cores)
        assert int(run_in(box, node.name, "nproc")) == len(node.cores)
    run_in(box, "n1", "touch", "/dev/shm/only-here")
    assert run_in(box, "n2", "ls", "/dev/shm") == ""
    assert not Path("/dev/shm/only-here").exists()
    run_in(box, "n1", "rm", "/dev/shm/only-here")


def test_slurm_has_partitions_slots_and_memory(box: str) -> None:
    partitions = run_in(box, "head", "sinfo", "-h", "-o", "%P %l %c %D").splitlines()
    assert partitions == ["main* 1-00:00:00 8 4", "short 10:00 8 4", "urgent 10:00 8 4"]
    memory = int(run_in(box, "head", "sinfo", "-h", "-p", "main", "-o", "%m"))
    assert memory >= 512


def test_batch_jobs_run_in_the_present_folder_and_exit_75_requeues(
    box: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nhostname > where\nexit 75\n")
    job = run_in(box, "head", "sbatch", "--requeue", "--parsable", "-w", "n2", "job.sh").strip()
    wait_until((tmp_path / "where").exists, "the job ran")

    def is_queued_again() -> bool:
        return "Restarts=1" in run_in(box, "head", "scontrol", "show", "job", job)

    wait_until(is_queued_again, "Slurm queued it again")
    run_in(box, "head", "scancel", job)
    assert (tmp_path / "where").read_text() == "n2\n"
