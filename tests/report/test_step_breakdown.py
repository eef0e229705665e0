"""What is said of where the time of steps goes."""

import time
from pathlib import Path

import pytest

from paceline.report import RunReader, render
from paceline.report.run.step_breakdown import Breakdown, breakdown, breakdown_sentence
from paceline.report.run.worker_status import worker_statuses
from paceline.specs import Part, Run, Workers, WorkerState
from report.folders import empty_run, say, started, steps

PLAIN: dict[Part, float] = {
    "data": 0.001,
    "forward": 0.020,
    "backward": 0.040,
    "communication": 0.003,
    "optimizer": 0.005,
}


def run_of(folder: Path, *workers: dict[Part, float]) -> Run:
    """A run whose workers say twice what their steps go to; first, that all is loaded."""
    run = empty_run(folder, nodes=len(workers))
    for rank, parts in enumerate(workers):
        say(run, started(rank, workers=len(workers)))
        for step, of_step in ((1, {"forward": 3.0}), (11, parts), (21, parts)):
            state = WorkerState(
                rank=rank, step=step, step_seconds=sum(of_step.values()), parts=of_step
            )
            say(run, Workers(time=time.time(), node=f"n{rank + 1}", states=[state]))
    say(run, steps(1, [1.0] * 21))
    return run


def found(run: Run) -> Breakdown:
    seen = breakdown(RunReader(run).refresh())
    assert seen is not None
    return seen


def test_what_takes_a_step_most_is_named(tmp_path: Path) -> None:
    cases: tuple[tuple[Part, str], ...] = (
        ("communication", "network"),
        ("data", "data"),
        ("checkpoint", "checkpoints"),
        ("other", "other"),
        ("backward", "compute"),
    )
    for part, expected in cases:
        run = run_of(tmp_path / part, *[PLAIN | {part: 0.5}] * 4)
        assert found(run).limit == expected
        assert found(run).seconds[part] == pytest.approx(0.5)
        assert not found(run).slow


def test_who_makes_the_others_wait_is_named_with_the_reason(tmp_path: Path) -> None:
    waiting = PLAIN | {"communication": 0.043}
    run = run_of(tmp_path, waiting, waiting, PLAIN | {"data": 0.041}, waiting)
    said = found(run)
    assert said.limit == "slow worker"
    assert said.limit_share == pytest.approx(0.040 / 0.109, rel=0.01)
    assert said.network_seconds == pytest.approx(0.003)
    assert [(each.rank, each.node, each.reason) for each in said.slow] == [(2, "n3", "data")]
    assert breakdown_sentence(said) == (
        "Of a step's 109 ms, 60 % computed, 30 % waited for other workers and 10 % waited for data."
        " 3 ms of the waiting is the communication itself, which even the last worker to arrive"
        " waits for. Worker 2 on n3 is a straggler: busy 1.61 × as long as the median worker,"
        " because of data."
    )
    state = RunReader(run).refresh()
    assert [one.text for one in worker_statuses(state)] == ["ok", "ok", "slow: data", "ok"]
    html = render(run)
    assert "worker 2, data: 37 % of a step" in html
    assert "Step breakdown" in html


def test_waiting_for_nobody_in_particular(tmp_path: Path) -> None:
    run = run_of(tmp_path, PLAIN, *[PLAIN | {"communication": 0.040}] * 3)
    assert found(run).limit == "uneven steps"


def test_who_says_nothing_of_it_has_no_breakdown(tmp_path: Path) -> None:
    run = empty_run(tmp_path, nodes=1)
    say(run, started(0, workers=1))
    state = WorkerState(rank=0, step=5, step_seconds=0.1)
    say(run, Workers(time=time.time(), node="n1", states=[state]))
    say(run, steps(1, [1.0] * 5))
    assert breakdown(RunReader(run).refresh()) is None
    assert "Limited by" not in render(run)
