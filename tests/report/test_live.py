"""The live view, as text."""

import io
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from paceline.report import RunReader, RunState, view, watch
from paceline.report.live.sparkline import sparkline
from paceline.report.live.view import left_seconds, line
from paceline.specs import Run
from report.folders import (
    empty_run,
    ended,
    failed,
    failed_run,
    finished,
    interrupted_run,
    realistic_run,
    resumed,
    saved,
    say,
    started,
    steps,
    workers,
)


def shown(state: RunState, *, width: int = 100, rows: int = 16) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(view(state, width=width, rows=rows))
    return console.export_text()


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=100)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_run_before_it_begins(tmp_path: Path) -> None:
    text = shown(RunReader(empty_run(tmp_path)).refresh())
    assert "gpt  waiting" in text
    assert "no worker has started yet" in text


def test_why_the_job_waits_until_a_worker_starts(tmp_path: Path) -> None:
    """Before, a run that waited for hours said only that no worker had started."""
    run, why = empty_run(tmp_path), "the job waits: other jobs use the nodes (Slurm: Resources)"

    def watched() -> str:
        console = plain_console()
        watch(run, console, until=lambda: True, why_waiting=lambda: why)
        return printed(console)

    assert f"waiting  {why}" in watched()
    say(run, started(0))
    say(run, steps(1, [3.0] * 10))
    assert why not in watched()
    say(run, finished(10, outcome="preempted"))  # at once, not only when all have been silent
    assert f"waiting  {why}" in watched()


def test_a_running_run(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    for rank in range(4):
        say(run, started(rank))
        say(run, workers(rank, 100, 0.2 if rank == 3 else 0.1))
    say(run, steps(1, [3.0 - n / 50 for n in range(100)]))
    text = shown(RunReader(run).refresh())
    assert "gpt  running  4 workers on 4 nodes, cpu, gloo over eth0" in text
    assert "step 100/500  20 %  40.0 s left" in text
    assert "loss 1.020" in text
    assert "640 samples/s" in text
    assert [row.split()[-1] for row in text.splitlines()[-4:]] == ["ok", "ok", "ok", "slow"]


def test_time_left_follows_the_recent_steps(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0, steps=200))
    say(run, steps(1, [1.0] * 100, seconds=[9.0] * 50 + [0.1] * 50))
    assert left_seconds(RunReader(run).refresh()) == pytest.approx(10.0)


def test_a_silent_worker_is_named(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    now = time.time()
    for rank in range(2):
        say(run, started(rank, workers=2, at=now))
    say(run, workers(0, 50, 0.1, at=now))
    say(run, workers(1, 20, 0.1, at=now - 42))
    state = RunReader(run).refresh()
    assert "silent for 42 s" in shown(state)
    assert "worker 1 silent for 42 s" in line(state)


def test_many_workers_are_shown_by_what_is_wrong_with_them(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    for rank in range(40):
        say(run, started(rank, workers=40))
        say(run, workers(rank, 10, 0.3 if rank == 33 else 0.1 + rank / 1e5))
    say(run, failed(17, "bad", at=1.0, lost_peer=True))
    text = shown(RunReader(run).refresh(), rows=5)
    rows = [row.split()[0] for row in text.splitlines() if row.split()[1:2] and " n" in row]
    assert "33" in rows
    assert "17" in rows
    assert "5 of 40 workers" in text
    assert "38 are ok" in text


def test_a_failed_run_says_who_and_why(tmp_path: Path) -> None:
    text = shown(RunReader(failed_run(tmp_path)).refresh())
    assert "gpt  failed" in text
    assert "worker 2 on n3: RuntimeError" in text
    assert "lost peer" in text


def test_text_of_the_user_is_not_markup_nor_control(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(0, "[bold]keys[/nope] \x1b[2Jgone", at=1.0))
    assert "[bold]keys[/nope] gone" in shown(RunReader(run).refresh())


def test_a_loss_that_is_no_number_is_said(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    say(run, steps(1, [2.0, float("nan")]))
    assert "the loss is NaN" in shown(RunReader(run).refresh())


def test_a_resumed_run_says_from_where_and_what_is_safe(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    now = time.time()
    say(run, started(0, at=now - 60))
    say(run, steps(1, [3.0] * 38, at=now - 50))
    say(run, failed(2, "killed by [SIGKILL]", at=now - 49))
    say(run, resumed(20, generation=1, at=now - 30))
    say(run, started(0, generation=1, at=now - 30))
    say(run, steps(21, [2.0] * 20, generation=1, at=now - 12))
    say(run, saved(40, generation=1, at=now - 12))
    text = shown(RunReader(run).refresh())
    assert "step 40/500" in text
    assert "resumed at step 20 after an interruption (worker 2: killed by [SIGKILL])" in text
    assert "last checkpoint: step 40, 12 s ago" in " ".join(text.split())


def test_a_finished_run_that_was_interrupted(tmp_path: Path) -> None:
    text = " ".join(shown(RunReader(interrupted_run(tmp_path)).refresh(), width=160).split())
    assert "resumed at step 70 after interruption 2 (time limit) last checkpoint: step 100" in text
    assert "ago" not in text


def test_a_run_that_waits_for_its_next_turn_has_no_silent_workers(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    now = time.time() - 900
    say(run, started(0, at=now))
    say(run, steps(1, [3.0] * 10, at=now))
    say(run, workers(0, 10, 0.1, at=now))
    say(run, finished(10, at=now, outcome="interrupted"))
    reader = RunReader(run)
    text = shown(reader.refresh())
    assert "gpt waiting" in " ".join(text.split())
    assert "interrupted at step 10 (time limit); not resumed yet" in text
    assert "silent" not in text
    say(run, resumed(10, generation=1, at=now))
    assert "the workers have not started again yet" in shown(reader.refresh())


def test_a_run_without_checkpoints_says_nothing_of_them(tmp_path: Path) -> None:
    text = shown(RunReader(realistic_run(tmp_path, count=20)).refresh())
    assert "checkpoint" not in text
    assert "resumed" not in text


def test_sparkline() -> None:
    assert sparkline([8.0, 7, 6, 5, 4, 3, 2, 1], 8) == "█▇▆▅▄▃▂▁"
    assert sparkline([2.0, 2.0], 8) == "▁▁"
    assert sparkline([1.0, float("nan"), 3.0], 8) == "▁ █"
    assert sparkline([0.0, 5e-324], 8) == "▁▁"  # the inverse of their difference is infinite
    assert sparkline([-1.7e308, 0.0, 1.7e308], 8) == "▁▅█"
    assert len(sparkline([1.0] * 1000, 24)) == 24
    assert sparkline([], 24) == ""


def test_watching_a_finished_run_shows_it_once(tmp_path: Path) -> None:
    console = plain_console()
    state = watch(realistic_run(tmp_path), console)
    assert state.status == "finished"
    assert printed(console).count("finished") == 1
    assert "step 500/500  100 %" in printed(console)


@pytest.mark.parametrize("terminal", [False, True])
def test_watching_until_the_run_ends(tmp_path: Path, terminal: bool) -> None:
    run = empty_run(tmp_path)
    say(run, started(0, steps=2))
    say(run, steps(1, [2.0]))
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)

    def end(run: Run) -> None:
        time.sleep(0.2)
        say(run, steps(2, [1.0]))
        say(run, ended(1), file="batch")

    ender = threading.Thread(target=end, args=(run,))
    ender.start()
    state = watch(run, console, interval_seconds=0.05)
    ender.join()
    assert (state.status, state.step) == ("failed", [1, 2])
    assert "exit code 1" in printed(console)
    assert terminal or "running  step 1/2  loss 2.000" in printed(console)


def test_watching_until_the_caller_has_enough(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    answers = iter([False, True])
    state = watch(run, plain_console(), interval_seconds=0.01, until=lambda: next(answers))
    assert state.status == "running"
    assert next(answers, None) is None
