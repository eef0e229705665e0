"""Reading a run's folder while it grows."""

import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.report import ReportedRun, RunReader, summary
from paceline.specs import Finished, Run
from report.folders import (
    BATCH,
    empty_run,
    ended,
    failed,
    realistic_run,
    say,
    started,
    steps,
    workers,
)


def finished(outcome: str = "finished") -> Finished:
    return Finished.model_validate(
        {"time": 1, "node": "n1", "outcome": outcome, "steps": 3, "samples": 192, "seconds": 2.0}
    )


def test_reads_only_what_is_new(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    assert reader.refresh().status == "waiting"
    say(run, started(0))
    say(run, steps(1, [3.0, 2.0], at=100.0))
    state = reader.refresh()
    assert (state.status, state.step, state.loss) == ("running", [1, 2], [3.0, 2.0])
    assert state.time == pytest.approx([99.9, 100.0])
    say(run, steps(3, [1.0]))
    assert reader.refresh().step == [1, 2, 3]
    assert reader.refresh().step == [1, 2, 3]


def test_a_line_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    line = steps(1, [3.0]).model_dump_json().encode() + b"\n"
    file = run.events / "n1.jsonl"
    for end in (0, 10, len(line) - 1):
        file.write_bytes(line[:end])
        state = reader.refresh()
        assert (state.step, state.unreadable_lines) == ([], 0)
    file.write_bytes(line)
    assert reader.refresh().step == [1]


def test_a_cut_off_line_is_counted_and_the_next_is_read(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    (run.events / "n1.jsonl").write_text('{"kind": "steps", "first": 1, "lo\n\n\x00\x00\n')
    say(run, steps(2, [2.0]))
    state = RunReader(run).refresh()
    assert (state.step, state.unreadable_lines) == ([2], 2)


def test_a_restart_shows_the_newest_start(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    say(run, started(0))
    say(run, steps(1, [3.0, 2.0]))
    say(run, failed(1, "node lost", at=5.0))
    say(run, ended(1), file="batch")
    assert reader.refresh().status == "failed"
    say(run, started(0, generation=1))
    say(run, steps(1, [2.9], generation=1))
    # A late word of the first start is not the second's.
    say(run, failed(2, "late", at=6.0))
    state = reader.refresh()
    assert (state.status, state.loss, state.restarts) == ("running", [2.9], 1)
    assert state.failures == []
    assert [failure.rank for failure in state.earlier_failures] == [1, 2]
    assert list(state.workers) == [0]


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "waiting"),
        ([started(0)], "running"),
        ([started(0), finished()], "finished"),
        ([started(0), finished(), ended(0)], "finished"),
        ([started(0), finished("stopped"), ended(143)], "stopped"),
        ([started(0), ended(0)], "stopped"),
        ([ended(3)], "failed"),
        ([started(0), failed(0, "ValueError", at=1.0)], "failed"),
        ([started(0), failed(0, "peer", at=1.0, lost_peer=True)], "failed"),
        ([finished(), failed(0, "peer", at=1.0, lost_peer=True)], "finished"),
        ([finished(), failed(0, "could not save", at=1.0)], "failed"),
        ([finished(), ended(139)], "failed"),
    ],
)
def test_status(tmp_path: Path, events: list[Finished], status: str) -> None:
    run = empty_run(tmp_path)
    for event in events:
        say(run, event)
    assert RunReader(run).refresh().status == status


def test_workers_keep_their_last_state_and_their_mean(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0, at=time.time() - 60))
    say(run, started(1, at=time.time() - 60))
    reader = RunReader(run)
    reader.refresh()
    say(run, workers(1, 10, 0.1))
    say(run, workers(1, 40, 0.5))
    found = reader.refresh().workers
    assert found[1].state is not None
    assert (found[1].node, found[1].state.step) == ("n2", 40)
    assert found[1].mean_step_seconds == pytest.approx(0.4)
    assert found[1].age_seconds < 5
    assert found[0].age_seconds == pytest.approx(60, abs=5)


def test_a_node_whose_clock_is_behind_is_not_silent(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    reader = RunReader(run)
    reader.refresh()
    say(run, workers(0, 10, 0.1, at=time.time() - 900))
    assert reader.refresh().workers[0].age_seconds < 5


def test_summary_of_a_finished_run(tmp_path: Path) -> None:
    run = realistic_run(tmp_path)
    state = RunReader(run).refresh()
    found = summary(state)
    assert state.finished is not None
    assert (found.steps, found.samples, found.workers, found.nodes) == (500, 500 * BATCH, 4, 4)
    assert found.seconds == state.finished.seconds
    assert found.samples_per_second == pytest.approx(found.samples / found.seconds)
    assert found.final_loss == state.loss[-1]
    assert found.hosts == ["n1", "n2", "n3", "n4"]
    assert (found.startup_seconds, found.batch, found.interface) == (3.3, BATCH, "eth0")
    fields = json.loads(json.dumps(ReportedRun(run, state).to_dict(), allow_nan=False))
    assert {"steps", "samples", "seconds", "samples_per_second", "final_loss"} <= set(fields)
    assert (fields["workers"], fields["nodes"], fields["status"]) == (4, 4, "finished")


def test_summary_of_a_run_that_has_not_begun(tmp_path: Path) -> None:
    found = summary(RunReader(empty_run(tmp_path, nodes=2)).refresh())
    assert (found.status, found.steps, found.seconds, found.workers) == ("waiting", 0, 0.0, 2)
    assert (found.final_loss, found.samples_per_second, found.device) == (None, 0.0, None)


def test_summary_without_the_last_word_adds_up_the_steps(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, steps(1, [3.0, 2.0], seconds=[1.0, 0.5]))
    found = summary(RunReader(run).refresh())
    assert (found.seconds, found.samples) == (1.5, 2 * BATCH)
    assert found.median_step_seconds == 0.75


def test_losses_that_are_no_numbers_are_counted_and_json_stays_valid(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, steps(1, [3.0, math.inf, math.nan]))
    found = summary(RunReader(run).refresh())
    assert (found.first_loss, found.final_loss, found.nonfinite_losses) == (3.0, None, 2)
    json.dumps(ReportedRun.read(run).to_dict(), allow_nan=False)


def test_hosts_are_in_the_order_people_count(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    for rank in (9, 1, 0):
        say(run, started(rank))
    assert summary(RunReader(run).refresh()).hosts == ["n1", "n2", "n10"]


@pytest.fixture(scope="module")
def reused_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return empty_run(tmp_path_factory.mktemp("runs"))


_LINES = st.sampled_from(
    [
        event.model_dump_json().encode()
        for event in (started(0), steps(1, [1.0]), workers(0, 1, 0.1), ended(0), finished())
    ]
)


@settings(max_examples=200, deadline=None)
@given(chunks=st.lists(st.binary(max_size=40) | _LINES | st.just(b"\n"), max_size=8))
def test_no_bytes_stop_the_reader(reused_run: Run, chunks: list[bytes]) -> None:
    file = reused_run.events / "n1.jsonl"
    file.write_bytes(b"")
    reader = RunReader(reused_run)
    for chunk in chunks:
        with file.open("ab") as stream:
            stream.write(chunk)
        reader.refresh()
    with file.open("ab") as stream:
        stream.write(b"\n" + steps(7, [0.5]).model_dump_json().encode() + b"\n")
    state = reader.refresh()
    assert state.step[-1] == 7
    summary(state)
