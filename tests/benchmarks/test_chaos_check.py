"""The checker of `benchmarks/chaos`, on runs in which something was made wrong."""

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.chaos.check import leftovers
from benchmarks.chaos.check.all import violations
from benchmarks.chaos.check.evidence import Evidence
from benchmarks.chaos.outcomes import outcomes
from chaos_evidence import WEIGHTS, read_lines, write_checkpoint, write_evidence, write_lines


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


def one_weight_off_by_a_bit(folder: Path) -> None:
    weights = WEIGHTS.copy()
    weights.view(np.uint32)[2, 1] ^= 1
    write_checkpoint(folder, weights)


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
            "replicas agree",
            "step 2, generation 0",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(hash="x")),
            "replicas agree",
            "ended apart",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(step=5)),
            "replicas agree",
            "ended after",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines[-1].update(generation=3)),
            "replicas agree",
            "different generations",
        ),
        (
            changed("history.jsonl", lambda lines: lines[-1].update(what="gave up", why="late")),
            "replicas agree",
            "did not come to its end: late",
        ),
        (
            changed(EVENTS, lambda lines: lines.insert(5, lines.pop(2))),
            "no stale generation",
            "saved (step 2) of generation 0 after 1",
        ),
        (
            changed(
                STEPS.format("101-1-n1"),
                lambda lines: lines.append({**lines[0], "step": 7, "generation": 1}),
            ),
            "no stale generation",
            "took step 7 in generation 1",
        ),
        (
            changed(STEPS.format("101-1-n1"), lambda lines: lines.pop(1)),
            "no stale generation",
            "step 3 after 1",
        ),
        (
            changed("history.jsonl", lambda lines: lines.pop(3)),
            "expected recovery",
            "fault 0 (kill) was not recovered from",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="pause")),
            "expected recovery",
            "fault 0 (pause): workers were given up: [1]",
        ),
        (
            changed(
                "history.jsonl",
                lambda lines: lines.insert(4, {"what": "exit", "at": 5.5, "code": 1, "step": 5}),
            ),
            "expected recovery",
            "ended with code 1 at step 5, after fault 0",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="stop")),
            "expected recovery",
            "fault 0 (stop): the run did not end with code 3",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="folder-gone")),
            "expected recovery",
            "fault 0 (folder-gone): the run did not end with code 6",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="strangers")),
            "expected recovery",
            "fault 0 (strangers): workers were given up: [1]",
        ),
        (
            changed("history.jsonl", lambda lines: lines[4].update(kind="second-trainer")),
            "expected recovery",
            "fault 1 (second-trainer): it was not refused, but ended with []",
        ),
        (
            changed(
                "history.jsonl",
                lambda lines: lines[4].update(kind="run-disk-full", events_before=0),
            ),
            "expected recovery",
            "fault 1 (run-disk-full): it was not told, or not over: []",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="torn")),
            "expected recovery",
            "`damaged`, which was told 0x",
        ),
        (
            changed("history.jsonl", lambda lines: lines[1].update(kind="nan", at_step=4)),
            "expected recovery",
            "fault 0 (nan): worker 1 was not named",
        ),
        (grown("fds", 8), "no leaks", "fds from"),
        (grown("threads", 3), "no leaks", "threads from"),
        (grown("rss_bytes", 10 << 20), "no leaks", "rss_bytes from"),
        (lambda folder: (folder / "tmp" / "left").touch(), "no leftovers", "such as left"),
        (
            lambda folder: write_checkpoint(folder, np.full((4, 3), 6.0, np.float32)),
            "same result",
            "of their norm apart",
        ),
        (one_weight_off_by_a_bit, "bitwise identical", "model/weight: 1 of 12 weights differ"),
        (
            changed(EVENTS, lambda lines: lines[7].update(loss=[99.0])),
            "same result",
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


def test_what_is_cached_once_is_no_growth(run: tuple[Path, Path]) -> None:
    def cache(lines: list[dict[str, Any]]) -> None:
        samples = [line for line in lines if line["what"] == "sample"]
        for line in samples[len(samples) // 4 :]:
            line["threads"] += 13

    changed("history.jsonl", cache)(run[0])
    assert violations(*run) == []


def test_files_that_strangers_hold_are_no_leak(run: tuple[Path, Path]) -> None:
    grown("fds", 8)(run[0])
    changed("history.jsonl", lambda lines: lines[4].update(kind="strangers"))(run[0])
    assert violations(*run) == []


def test_bits_matter_only_where_they_are_promised(run: tuple[Path, Path]) -> None:
    changed("history.jsonl", lambda lines: lines[0].update(same_bits=False))(run[0])
    one_weight_off_by_a_bit(run[0])
    assert violations(*run) == []


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
    assert found.rule == "no leftovers"
    assert f"process {left.pid} is still there: sleep 60" in found.message


def test_a_port_that_is_left_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] in set(leftovers._ports())


def test_what_came_of_a_fault(run: tuple[Path, Path]) -> None:
    kill, pause = outcomes(Evidence(run[0]))
    assert (kill.kind, kill.ways, kill.seconds, kill.steps_again) == ("kill", ("members",), 0.5, 1)
    assert (pause.kind, pause.ways, pause.steps_again) == ("pause", (), 0)
