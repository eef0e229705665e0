"""Traces of several workers as one file, on one clock."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command import paceline
from full_disk import at_most
from paceline.cli.app import app
from paceline.observe.traces import chrome_trace
from paceline.observe.traces.chrome_trace import (
    WorkerTrace,
    join_traces,
    worker_traces,
    write_worker_trace,
)
from paceline.specs import PacelineError, Run, Traced
from ranks import new_run

NOON = 1_790_000_000_000_000_000


def traced(rank: int, generation: int = 0, offset: float = 0.0) -> Traced:
    return Traced(
        time=NOON / 1e9,
        node=f"n{rank + 1}",
        generation=generation,
        rank=rank,
        first=6,
        steps=2,
        step_seconds=0.02,
        communication_seconds=0.008,
        overlapped_seconds=0.006,
        clock_offset_seconds=offset,
        clock_uncertainty_seconds=2e-4,
    )


def leave_trace(run: Run, about: Traced, begin: int) -> None:
    """A worker's file with one all-reduce, 1 ms after `begin` on its own clock."""
    event = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "dur": 500.0}
    events = [
        {"ph": "M", "name": "thread_name", "pid": about.rank, "tid": 2, "ts": 0, "args": {}},
        event | {"pid": about.rank, "tid": 2, "ts": 1000.0},
    ]
    write_worker_trace(run, WorkerTrace(traced=about, begin_unix_nanoseconds=begin), events)


def run_of_two(folder: Path) -> Run:
    """The clock of worker 1's node is 3.5 s ahead; both began an all-reduce at once, worker 1 its
    first step 0.25 ms earlier."""
    run = new_run(folder, 2)
    leave_trace(run, traced(0), NOON)
    leave_trace(run, traced(1, offset=3.5), NOON + 3_500_000_000 - 250_000)
    return run


def read(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", ["trace.json.gz", "trace.json"])
def test_times_are_by_the_clock_of_worker_0(tmp_path: Path, name: str) -> None:
    run = run_of_two(tmp_path)
    join_traces(worker_traces(run), tmp_path / name)
    found = read(tmp_path / name)
    begins = {each["pid"]: each["ts"] for each in found["traceEvents"] if each["ph"] == "X"}
    assert begins == {0: 1250.0, 1: 1000.0}
    assert found["paceline"]["begin_unix_nanoseconds"] == NOON - 250_000
    assert [each["clock_offset_seconds"] for each in found["paceline"]["workers"]] == [0.0, 3.5]


def test_the_file_has_the_form_that_viewers_read(tmp_path: Path) -> None:
    join_traces(worker_traces(run_of_two(tmp_path)), tmp_path / "trace.json.gz")
    events = read(tmp_path / "trace.json.gz")["traceEvents"]
    for each in events:
        assert each["ph"] in ("M", "X")
        assert isinstance(each["pid"], int)
        assert isinstance(each["tid"], int)
        assert each["ts"] >= 0
        assert each["ph"] == "M" or each["dur"] >= 0
    names = {each["pid"]: each["args"] for each in events if each["name"] == "process_name"}
    assert names == {0: {"name": "worker 0 on node n1"}, 1: {"name": "worker 1 on node n2"}}
    order = {each["pid"]: each["args"] for each in events if each["name"] == "process_sort_index"}
    assert order == {0: {"sort_index": 0}, 1: {"sort_index": 1}}


def test_each_workers_own_file_opens_too(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    found = read(run.trace / "n2-1.json.gz")
    assert [each["ph"] for each in found["traceEvents"]] == ["M", "X"]


def test_of_a_run_that_was_started_again_the_last_trace_counts(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    leave_trace(run, traced(0, generation=1), NOON)
    assert [each.traced.generation for each in worker_traces(run).values()] == [1]


def test_the_command_says_what_was_hidden(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    output = tmp_path / "joined.json.gz"
    said = CliRunner().invoke(app, ["trace", str(run.path), "-o", str(output)]).stdout
    row = next(line.split() for line in said.splitlines() if "n2" in line)
    assert row == ["1", "n2", "6–7", "20.0", "8.00", "75", "%", "2.00", "3500.000", "±", "0.200"]
    figures = json.loads(
        CliRunner().invoke(app, ["trace", str(run.path), "-o", str(output), "--json"]).stdout
    )
    assert figures["workers"][1]["exposed_seconds"] == pytest.approx(0.002)
    assert read(output)["traceEvents"]


def test_mistakes_are_explained(tmp_path: Path) -> None:
    run = new_run(tmp_path, 2)
    said = paceline("trace", run.path, folder=tmp_path, expect=2).stderr
    assert "has no trace: nothing was recorded" in said
    assert "give --trace 5 to `paceline run`" in said
    leave_trace(run, traced(0), NOON)
    (run.trace / "n2-1.json.gz").write_text("cut")
    with pytest.raises(PacelineError, match=r"n2-1\.json\.gz can't be read as a worker's trace"):
        worker_traces(run)
    said = paceline("trace", run.path, "-o", "trace.html", folder=tmp_path, expect=2).stderr
    assert "-o trace.html ends in neither .json.gz nor .json" in said
    assert "give -o trace.html.json.gz" in said


def test_a_trace_that_is_cut_off_is_named_and_no_output_is_left(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    cut = next(path for path in run.trace.iterdir() if path.name.startswith("n2"))
    cut.write_bytes(cut.read_bytes()[:-20])
    said = paceline("trace", run.path, "-o", "all.json.gz", folder=tmp_path, expect=2).stderr
    assert f"{cut.name} can't be read as a worker's trace" in said
    assert "Traceback" not in said
    assert not (tmp_path / "all.json.gz").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"ph":"X"}',
        b'{"ph":"X","ts":"now"}',
        b'{"ph":"X","ts":%s}' % (b"9" * 400),
        b"[" * 100_000,
        b'{"ph":"X","ts":1,"name":"%s"}' % (b"x" * (2 << 20)),
    ],
    ids=["a list", "no time", "text as time", "a huge time", "nested", "a long line"],
)
def test_what_is_no_event_is_refused(tmp_path: Path, line: bytes) -> None:
    run = run_of_two(tmp_path)
    path = run.trace / "n2-1.json.gz"
    written = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(written.replace(b"\n]}", b",\n" + line + b"\n]}")))
    with pytest.raises(PacelineError, match=r"n2-1\.json\.gz can't be read as a worker's trace"):
        join_traces(worker_traces(run), tmp_path / "all.json")


def test_a_trace_without_end_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_two(tmp_path)
    monkeypatch.setattr(chrome_trace, "_MOST_BYTES", 10_000)
    path = run.trace / "n2-1.json.gz"
    event = b'{"ph":"X","ts":1,"pid":1,"tid":1,"dur":1,"name":"a"},\n'
    head = gzip.decompress(path.read_bytes()).splitlines(keepends=True)[0]
    path.write_bytes(gzip.compress(head + event * 1000))
    with pytest.raises(PacelineError, match="can't be read as a worker's trace"):
        join_traces(worker_traces(run), tmp_path / "all.json")


def test_a_full_disk_leaves_no_half_of_a_trace(tmp_path: Path) -> None:
    run = new_run(tmp_path, 1)
    with at_most(10), pytest.raises(OSError, match="File too large"):
        leave_trace(run, traced(0), NOON)
    assert list(run.trace.iterdir()) == []
