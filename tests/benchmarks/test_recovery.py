"""`benchmarks/recovery`: what it reads out of histories, its quantiles, its table; its nodes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.recovery.history import History, lost_and_doubled, steps_of
from benchmarks.recovery.launchers import Settings
from benchmarks.recovery.nodes import Nodes
from benchmarks.recovery.results import Results, quantile
from benchmarks.recovery.trials import Fault, Goodput, fault

FOUR, THREE = "four", "three"


class Writer:
    """What a worker writes, at times that are given."""

    def __init__(self, folder: Path, process: int, worker: int) -> None:
        self._path = folder / f"{process}.jsonl"
        self._write({"pid": process, "worker": worker})

    def entering(self, step: int, attempt: str, ids: range) -> None:
        self._write({"step": step, "attempt": attempt, "ids": list(ids)})

    def committed(self, at: float, step: int, attempt: str) -> None:
        self._write({"at": at, "step": step, "attempt": attempt})

    def _write(self, line: dict[str, object]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def killed_at_two(folder: Path) -> History:
    """Two workers of two samples a step; the second dies after 2 s, in step 3."""
    first, second = Writer(folder, 11, 0), Writer(folder, 12, 1)
    for step in (1, 2, 3):
        for worker, own in enumerate((first, second)):
            own.entering(step, FOUR, range(4 * step - 4 + worker, 4 * step, 2))
            if step < 3:
                own.committed(step - 0.1, step, FOUR)
    # It had the other's part of step 3 before that was killed.
    first.committed(2.05, 3, FOUR)
    first.entering(4, FOUR, range(12, 16, 2))
    first.entering(4, THREE, range(12, 16))
    first.committed(2.5, 4, THREE)
    return History.read(folder)


def test_a_step_with_the_part_of_the_dead_is_no_recovery(tmp_path: Path) -> None:
    found = killed_at_two(tmp_path).recovered(2.0, victim=12)
    assert found
    assert (found.step, found.at) == (4, 2.5)


def test_samples_of_the_attempt_that_counts(tmp_path: Path) -> None:
    history = killed_at_two(tmp_path)
    assert lost_and_doubled(history.counting(), range(1, 5), batch=4) == (0, 0)
    assert history.committed_at() == pytest.approx({1: 0.9, 2: 1.9, 3: 2.05, 4: 2.5})


def test_steps_taken_again_are_no_recovery_until_beyond(tmp_path: Path) -> None:
    before, after = Writer(tmp_path, 11, 0), Writer(tmp_path, 21, 0)
    for step in range(1, 8):
        before.entering(step, "a", range(step - 1, step))
        before.committed(step, step, "a")
    for step in range(6, 10):
        after.entering(step, "b", range(step - 1, step))
        after.committed(20.0 + step, step, "b")
    history = History.read(tmp_path)
    found = history.recovered(7.5, victim=12)
    assert found
    assert (found.step, found.at) == (8, 28.0)
    assert lost_and_doubled(history.counting(), range(1, 10), batch=1) == (0, 0)
    assert history.committed_at()[6] == 26.0


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    killed_at_two(tmp_path)
    with (tmp_path / "12.jsonl").open("a") as file:
        file.write('{"at": 9')
    (tmp_path / "13.jsonl").write_text('{"pi')
    assert History.read(tmp_path).last_step() == 4


@given(lost=st.sets(st.integers(4, 11)), doubled=st.sets(st.integers(4, 11)))
def test_lost_and_doubled_samples_are_counted(lost: set[int], doubled: set[int]) -> None:
    doubled -= lost
    steps = {
        step: [each for each in range(4 * step - 4, 4 * step) if each not in lost]
        for step in (1, 2, 3, 4)
    }
    steps[3] += sorted(doubled)
    assert lost_and_doubled(steps, range(2, 4), batch=4) == (len(lost), len(doubled))


def test_a_ledger_takes_back_what_was_not_gone_on_from(tmp_path: Path) -> None:
    for start, resumed, steps in ((0, 0, (1, 2, 3)), (1, 2, (3, 4))):
        for part in (0, 1):
            lines: list[dict[str, object]] = [{"resumed": resumed, "parts": 2, "samples": 99}]
            lines += [{"step": step, "epoch": 0, "ids": [10 * step + part]} for step in steps]
            path = tmp_path / f"start-{start:05d}-part-{part:05d}.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {step: (start[-1], ids) for step, (start, ids) in steps_of(tmp_path).items()}
    assert found == {1: ("0", [10, 11]), 2: ("0", [20, 21]), 3: ("1", [30, 31]), 4: ("1", [40, 41])}
    (tmp_path / "own").mkdir()
    own = Writer(tmp_path / "own", 11, 0)
    for step in (1, 2, 3):
        own.committed(float(step), step, "")
    history = History.read(tmp_path / "own", ledger=tmp_path)
    recovered = history.recovered(1.5, victim=12)
    assert recovered
    assert recovered.step == 3, "step 2 still has the part of the dead"
    assert history.counting() == {1: [10, 11], 2: [20, 21], 3: [30, 31]}


def test_quantiles_count_those_that_never_came_back() -> None:
    assert quantile([3.0, 1.0, 2.0, None], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0, None], 0.95) is None
    assert quantile([float(each) for each in range(1, 21)], 0.95) == 19.0
    assert quantile([], 0.5) is None


def results() -> Results:
    found = Results(0.1, 20.0, missing=["torchft"])
    found.faults += [Fault("Paceline", "kill", 0.1, 0, 0), Fault("Paceline", "hang", 1.8, 0, 0)]
    found.faults += [Fault("torchrun", "kill", None, None, None)]
    found.goodputs += [Goodput("Paceline, a spare", 15.0, 12, 3000.0, 2955.0, 0.1, 0.1)]
    return found


def test_the_table(tmp_path: Path) -> None:
    results().write(tmp_path / "found.json")
    again = Results.read(tmp_path / "found.json")
    assert again == results()
    console = Console(file=io.StringIO(), width=200)
    again.show(console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.10 / 0.10" in said
    assert "never / never" in said
    assert "not installed" in said
    assert "model says 99.3%, measured 98.5%" in said
    assert "NOT MET" not in said
    assert "met: goodput with a spare >= 98%" in said


def test_goals_that_are_missed() -> None:
    found = results()
    found.faults += [Fault("Paceline", "kill", 0.3, 16, 0)]
    assert not found.met()["kill, p95 <= 0.15 s"]
    assert not found.met()["no sample lost or doubled"]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_lost_node_is_silent_at_once() -> None:
    program = (
        "import socket; s = socket.create_server(('0.0.0.0', 5000)); print('here', flush=True);"
        " c, _ = s.accept(); c.sendall(b'x'); c.recv(1)"
    )
    listen = (
        "import socket, sys; c = socket.create_connection(('10.77.0.2', 5000)); c.recv(1);"
        " print('heard', flush=True); c.settimeout(1.0)\n"
        "try: print('end', c.recv(1))\n"
        "except TimeoutError: print('silence')"
    )
    with Nodes(2) as nodes:
        server = subprocess.Popen(
            [*nodes.inside(1), sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout
        assert server.stdout.readline() == "here\n"
        client = subprocess.Popen(
            [*nodes.inside(0), sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True
        )
        assert client.stdout
        assert client.stdout.readline() == "heard\n"
        nodes.lose(1)
        assert server.wait(10) == -9
        assert client.communicate(timeout=20)[0] == "silence\n"
    left = subprocess.check_output(["ip", "netns", "list"], text=True)
    assert f"recovery-{os.getpid()}" not in left


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["Paceline", "Paceline, a spare"])
def test_a_killed_worker_costs_no_sample(way: str) -> None:
    found = fault(way, "kill", Settings(0.02, 5.0, None), Random(1), limit_seconds=60)
    assert found.seconds is not None
    assert found.seconds < 30
    assert (found.lost, found.doubled) == (0, 0)
