"""`benchmarks/chaos`: its schedule, its checker on doctored runs, and real runs with faults."""

import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1]))
from benchmarks.chaos.check import leftovers
from benchmarks.chaos.check.all import violations
from benchmarks.chaos.check.evidence import Evidence
from benchmarks.chaos.kinds import HERE, KINDS, TESTBED
from benchmarks.chaos.outcomes import outcomes
from benchmarks.chaos.results import Broken, Outcome, Results
from benchmarks.chaos.schedule import printed, read, schedule, total_steps
from benchmarks.chaos.shown import page

from chaos_evidence import read_lines, write_checkpoint, write_evidence, write_lines


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


def test_other_seeds_give_other_schedules() -> None:
    assert schedule(1, HERE, 50, 4) != schedule(2, HERE, 50, 4)


def test_there_are_at_least_seventeen_kinds_on_one_machine() -> None:
    assert len(HERE) >= 17
    assert len(KINDS) >= 22


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run with faults in which all is well, and the same one undisturbed."""
    # The whole machine's are those of whoever else is on it.
    monkeypatch.setattr(leftovers, "_ports", lambda: iter(()))
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path / "shm")
    for name in ("faults", "alone"):
        write_evidence(tmp_path / name)
    return tmp_path / "faults", tmp_path / "alone"


def test_a_run_that_went_well_breaks_no_rule(run: tuple[Path, Path]) -> None:
    assert violations(*run) == []


Doctor = Callable[[Path], None]


def changed(pattern: str, change: Callable[[list[dict[str, Any]]], object]) -> Doctor:
    """Changes the lines of the one file of this name."""

    def doctor(folder: Path) -> None:
        (path,) = folder.glob(pattern)
        lines = read_lines(path)
        change(lines)
        write_lines(path, lines)

    return doctor


def grown(what: str, by: int) -> Doctor:
    def grow(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["what"] == "sample":
                line[what] += line["generation"] * by

    return changed("history.jsonl", grow)


LEDGER = "runs/*/ledger/start-{}-part-{}.jsonl"
FIRST = LEDGER.format("00000", "00000")
LAST = LEDGER.format("00002", "00001")
STEPS = "chaos/steps/{}.jsonl"
EVENTS = "runs/*/events/n1.jsonl"


@pytest.mark.parametrize(
    ("doctor", "rule", "message"),
    [
        (changed(FIRST, lambda lines: lines[1]["ids"].append(3)), "each sample once", "more than"),
        (changed(FIRST, lambda lines: lines[1]["ids"].pop()), "each sample once", "1 samples were"),
        (changed(FIRST, lambda lines: lines[1]["ids"].append(77)), "each sample once", "there are"),
        (changed(LAST, lambda lines: lines.pop()), "each sample once", "1 of 2 parts"),
        (changed(FIRST, lambda lines: lines.pop(2)), "each sample once", "step 2 has 1 of 2"),
        (
            changed(LAST, lambda lines: lines[0].update(resumed=4)),
            "each sample once",
            "began apart",
        ),
        (
            changed(LAST, lambda lines: lines.append({**lines[-1], "step": 5})),
            "each sample once",
            "took step 5 again",
        ),
        (
            changed(LAST, lambda lines: lines.append({**lines[-1], "step": 7})),
            "each sample once",
            "beyond the last",
        ),
        (
            lambda folder: [path.unlink() for path in folder.glob(LEDGER.format("00001", "*"))],
            "each sample once",
            "1 steps were not taken, the first 5",
        ),
        (
            changed(STEPS.format("100-1-n1"), lambda lines: lines[1].update(hash="x")),
            "members agree",
            "step 2, generation 0",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(hash="x")),
            "members agree",
            "ended apart",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(step=5)),
            "members agree",
            "ended after",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(generation=3)),
            "members agree",
            "different generations",
        ),
        (
            changed("history.jsonl", lambda lines: lines[-1].update(what="gave up", why="late")),
            "members agree",
            "did not come to its end: late",
        ),
        (
            changed(EVENTS, lambda lines: lines.insert(5, lines.pop(2))),
            "old generations are over",
            "saved (step 2) of generation 0 after 1",
        ),
        (
            changed(
                STEPS.format("101-1-n1"),
                lambda lines: lines.append({**lines[0], "step": 7, "generation": 1}),
            ),
            "old generations are over",
            "took step 7 in generation 1",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines.pop(1)),
            "old generations are over",
            "step 3 after 1",
        ),
        (
            changed("history.jsonl", lambda lines: lines.pop(3)),
            "each fault as it should",
            "fault 0 (kill) was not recovered from",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="pause")),
            "each fault as it should",
            "fault 0 (pause): workers were given up: [1]",
        ),
        (
            changed(
                "history.jsonl",
                lambda lines: lines.insert(4, {"what": "exit", "at": 5.5, "code": 1, "step": 5}),
            ),
            "each fault as it should",
            "ended with code 1 at step 5, after fault 0",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="stop")),
            "each fault as it should",
            "did not say that it was stopped",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="torn")),
            "each fault as it should",
            "`damaged`, which was told 0x",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="nan", at_step=4)),
            "each fault as it should",
            "fault 0 (nan): worker 1 was not named",
        ),
        (grown("fds", 3), "nothing grows", "fds from"),
        (grown("threads", 1), "nothing grows", "threads from"),
        (grown("rss_bytes", 10 << 20), "nothing grows", "rss_bytes from"),
        (lambda folder: (folder / "tmp" / "left").touch(), "nothing is left", "such as left"),
        (
            lambda folder: write_checkpoint(folder, np.full((4, 3), 6.0, np.float32)),
            "learns the same",
            "of their norm apart",
        ),
        (
            changed(EVENTS, lambda lines: lines[7].update(loss=[99.0])),
            "learns the same",
            "the loss is",
        ),
    ],
)
def test_each_rule_finds_what_is_wrong(
    run: tuple[Path, Path], doctor: Doctor, rule: str, message: str
) -> None:
    doctor(run[0])
    found = violations(*run)
    assert any(each.rule == rule and message in each.message for each in found), found


def test_a_worker_that_is_named_is_no_violation(run: tuple[Path, Path]) -> None:
    changed("history.jsonl", lambda lines: lines[1].update(kind="nan", at_step=4))(run[0])
    refused = {"kind": "refused", "generation": 0, "step": 4, "ranks": [1]}
    changed(EVENTS, lambda lines: lines.insert(3, refused))(run[0])
    assert violations(*run) == []


def test_a_process_that_is_left_is_found(run: tuple[Path, Path]) -> None:
    mark = {"PACELINE_CHAOS": str(run[0] / "chaos")}
    left = subprocess.Popen(["sleep", "60"], env=mark)
    try:
        (found,) = violations(*run)
    finally:
        left.kill()
        left.wait()
    assert found.rule == "nothing is left"
    assert f"process {left.pid} is still there: sleep 60" in found.message


def test_a_port_that_is_left_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] in set(leftovers._ports())


def test_what_came_of_a_fault(run: tuple[Path, Path]) -> None:
    kill, pause = outcomes(Evidence(run[0]))
    assert (kill.kind, kill.ways, kill.seconds, kill.steps_again) == ("kill", ("members",), 0.5, 1)
    assert (pause.kind, pause.ways, pause.steps_again) == ("pause", (), 0)


def made_up() -> Results:
    one = Outcome("ddp", 1, 0, "kill", ("members",), 0.1, 1)
    others = [replace(one, number=n, seconds=n / 10) for n in range(1, 20)]
    went_on = replace(one, kind="pause", ways=(), seconds=0.5, steps_again=0)
    run = {"setting": "ddp", "seed": 1, "faults": 21, "seconds": 60.0}
    return Results("a machine", [run], [went_on, one, *others])


def test_figures_of_a_kind(tmp_path: Path) -> None:
    results = made_up()
    kill, pause = results.rows()
    assert (kill.kind, kill.times, kill.max_seconds) == ("kill", 20, 1.9)
    assert kill.p50_seconds == pytest.approx(0.95)
    assert (kill.p95_seconds, kill.mean_steps_again) == (1.9, 1)
    assert pause.ways == {"went on": 1}
    results.write(tmp_path / "found.json")
    assert Results.read(tmp_path / "found.json") == results


def test_the_page_says_what_was_broken() -> None:
    results = made_up()
    assert "**0 of its rules were broken.**" in page(results)
    assert "| a worker is killed | kill −9 | 20 |" in page(results)
    results.broken.append(Broken("ddp", 1, "each sample once", "step 3 has 1 of 2 parts"))
    assert "**1 of its rules were broken.**" in page(results)
    assert "step 3 has 1 of 2 parts" in page(results)


def chaos(*words: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    """Run the harness as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *words],
        cwd=Path(__file__).parents[1],
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
@pytest.mark.timeout(600)
def test_every_kind_of_fault(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    files = ["--json", str(found), "--out", str(tmp_path / "runs")]
    done = chaos("--faults", "25", "--seed", "1", *files, seconds=580)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Results.read(found)
    assert len(results.outcomes) == 25
    assert {outcome.kind for outcome in results.outcomes} == set(HERE)
    assert not results.broken
    assert results.runs[0]["seconds"] < 300


@pytest.mark.slurm
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nodes_and_links_of_a_testbed(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    files = ["--json", str(found), "--out", str(tmp_path / "runs")]
    done = chaos("--nodes", "6", "--faults", "8", "--seed", "1", *files, seconds=880)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {outcome.kind for outcome in Results.read(found).outcomes} == set(TESTBED)
