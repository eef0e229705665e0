"""`benchmarks/chaos`: its schedule, and real runs with faults."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outside
from benchmarks.chaos.faults.kinds import HERE, KINDS, ON_DEVICES, TESTBED
from benchmarks.chaos.faults.schedule import printed, read, schedule, total_steps
from benchmarks.chaos.results import Results


@given(seed=st.integers(0, 10**9), faults=st.integers(1, 80))
def test_a_schedule_is_a_function_of_its_seed(seed: int, faults: int) -> None:
    found = schedule(seed, HERE, faults, workers=4)
    assert found == schedule(seed, HERE, faults, workers=4)
    assert read(printed(found)) == found
    assert len(found) == faults
    assert [fault.number for fault in found] == list(range(faults))
    assert all(later.step > fault.step for fault, later in pairwise(found))
    assert total_steps(found) > found[-1].step
    if faults >= len(HERE):
        assert {fault.kind for fault in found} == set(HERE)


def test_what_ends_a_run_comes_once_in_every_hundred() -> None:
    found = schedule(1, HERE, 300, workers=4)
    for first in (0, 100, 200):
        times = Counter(fault.kind for fault in found[first : first + 100])
        assert times.keys() == set(HERE)
        assert sum(times[kind] for kind in ("supervisor", "stop", "memory", "torn")) <= 8


def test_other_seeds_give_other_schedules() -> None:
    assert schedule(1, HERE, 50, 4) != schedule(2, HERE, 50, 4)


def test_a_schedule_leaves_enough_nodes() -> None:
    lost = [fault for fault in schedule(1, TESTBED, 50, workers=8) if KINDS[fault.kind].takes_node]
    assert len(lost) == 8 - max(KINDS[kind].workers for kind in TESTBED)


def test_there_are_at_least_seventeen_kinds_on_one_machine() -> None:
    assert len(HERE) >= 17
    assert len(KINDS) >= 22


def chaos(
    *words: str, seconds: float, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the harness as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *words],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_a_schedule_is_printed_and_nothing_run() -> None:
    done = chaos("--print", "--seed", "3", "--faults", "30", seconds=60)
    assert read(done.stdout) == schedule(3, HERE, 30, 4)


@pytest.mark.slurm  # it needs the same namespaces
@pytest.mark.alone
@pytest.mark.flaky(reruns=1)  # half a second becomes a lease where others take the machine
@pytest.mark.timeout(1500)
def test_every_kind_of_fault(tmp_path: Path) -> None:
    found, before = tmp_path / "found.json", processor_seconds()
    files = ["--json", str(found), "--out", str(tmp_path / "runs")]
    faults = len(HERE)
    done = chaos("--faults", str(faults), "--seed", "1", *files, seconds=1450)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Results.read(found)
    assert len(results.outcomes) == faults
    assert {outcome.kind for outcome in results.outcomes} == set(HERE)
    assert not results.broken
    stolen, all_of_it = (now - then for now, then in zip(processor_seconds(), before, strict=True))
    assert results.runs[0].seconds < 6 * faults or stolen > 0.03 * all_of_it


def processor_seconds() -> tuple[float, float]:
    """What others have taken of this machine since it was started, and all that there was."""
    times = psutil.cpu_times()
    return times.steal, sum(times)


@pytest.mark.slurm
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nodes_and_links_of_a_testbed(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    files = ["--json", str(found), "--out", str(tmp_path / "runs")]
    done = chaos("--nodes", "6", "--faults", "8", "--seed", "1", *files, seconds=880)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {outcome.kind for outcome in Results.read(found).outcomes} == set(TESTBED)


@pytest.mark.slurm
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", ["ddp", "fsdp", "hsdp", "diloco"])
def test_simulated_accelerators(tmp_path: Path, setting: str) -> None:
    found = tmp_path / "found.json"
    files = ["--json", str(found), "--out", str(tmp_path / "runs")]
    kinds = ["--kinds", ",".join(("kill", "hang", *ON_DEVICES)), "--lease", "4"]
    done = chaos(
        *("--settings", setting, "--faults", "12", *kinds, *files),
        seconds=880,
        environment=outside.environment("simulated") | {"PACELINE_DEVICE_KIND": "sim"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(ON_DEVICES) < {outcome.kind for outcome in Results.read(found).outcomes}
