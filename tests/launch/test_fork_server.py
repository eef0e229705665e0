"""Workers of one machine are forked from a process that has loaded torch."""

import ctypes
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from command import PACELINE, paceline_json, workers_of, write_training
from paceline.launch.fork_server_client import _PR_SET_CHILD_SUBREAPER, ForkServer
from ranks import new_run

pytestmark = pytest.mark.slow

SLOW = """
import dataclasses, time
quick = training
def training():
    given = quick()
    def loss(output, target):
        time.sleep(0.02)
        return given.loss(output, target)
    return dataclasses.replace(given, steps=10_000, loss=loss)
"""


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def started(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*PACELINE, "run", "train.py", "-n", "2", "--quiet", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


def fork_server_of(supervisor: "subprocess.Popen[str]") -> psutil.Process | None:
    for each in psutil.Process(supervisor.pid).children():
        with suppress(psutil.NoSuchProcess):  # also what has ended and is not waited for yet
            if "paceline.train.worker.fork_server" in each.cmdline():
                return each
    return None


def steps(folder: Path) -> int:
    files = list((folder / "runs").glob("*/events/*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return max((line.get("first", 0) for line in lines), default=0)


def test_each_draws_its_own_and_says_so_in_the_log(tmp_path: Path) -> None:
    more = """
import os, random, sys, numpy
print("drawn", os.environ["PACELINE_RANK"], random.random(), numpy.random.rand())
print("stdin", sys.stdin.read() == "", file=sys.stderr)
"""
    write_training(tmp_path, more)
    paceline_json("run", "train.py", "-n", "2", folder=tmp_path)
    (log,) = (tmp_path / "runs").glob("*/logs/*.log")
    lines = [line.split() for line in log.read_text().splitlines()]
    drawn = [line[2:] for line in lines if line[1] == "drawn"]
    assert sorted(line[0] for line in drawn) == ["0", "1"]
    assert drawn[0][1] != drawn[1][1]
    assert drawn[0][2] != drawn[1][2]
    assert [line[1:] for line in lines if line[1] == "stdin"] == [["stdin", "True"]] * 2


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    write_training(tmp_path)
    paceline_json("run", "train.py", "-n", "2", folder=tmp_path)
    (events,) = (tmp_path / "runs").glob("*/events/*.jsonl")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    told = [line["threads"] for line in lines if line["kind"] == "started"]
    assert told == [max(1, len(os.sched_getaffinity(0)) // 2)]


@pytest.mark.nightly
def test_training_goes_on_without_it_and_a_worker_comes_from_another(tmp_path: Path) -> None:
    write_training(tmp_path, SLOW)
    supervisor = started(tmp_path)
    until(lambda: steps(tmp_path) > 0, "nobody trains")
    first = fork_server_of(supervisor)
    assert first is not None
    first.kill()
    before, reached = workers_of(supervisor), steps(tmp_path)
    until(lambda: steps(tmp_path) > reached, "training did not go on")
    assert workers_of(supervisor) == before
    max(before, key=lambda worker: worker.pid).kill()
    until(lambda: bool(workers_of(supervisor) - before), "nobody came in its place")
    second = fork_server_of(supervisor)
    assert second is not None
    assert second != first
    supervisor.send_signal(signal.SIGTERM)
    _, errors = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 3, errors


@pytest.mark.parametrize(
    "spares",
    # Who stands by might have been taken in: this is known when nobody has answered it for 30 s.
    [pytest.param(each, marks=pytest.mark.nightly) for each in (0, 1)],
)
def test_all_workers_are_killed_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path, spares: int
) -> None:
    write_training(tmp_path, SLOW.replace("10_000", "300"))
    supervisor = started(tmp_path, "--ledger", "--save-every", "20", "--spares", str(spares))
    until(lambda: steps(tmp_path) > 50, "it does not train")
    for worker in workers_of(supervisor):
        if worker.name() != "paceline joins":
            worker.kill()
    _, errors = supervisor.communicate(timeout=60 + 30 * spares)
    assert supervisor.returncode == 0, errors
    (run,) = (tmp_path / "runs").iterdir()
    assert paceline_json("ledger", str(run), folder=tmp_path)["exact"]
    result = paceline_json("report", str(run), folder=tmp_path)
    assert result["status"] == "finished"
    assert result["steps"] == 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_ended_before_anybody_is_born(tmp_path: Path, number: signal.Signals) -> None:
    write_training(tmp_path, "\nprint('somebody was born')\n")
    supervisor = started(tmp_path)
    until(lambda: fork_server_of(supervisor) is not None, "nothing is started")
    fork_server = fork_server_of(supervisor)
    assert fork_server is not None
    if number == signal.SIGTERM:
        until(lambda: list((tmp_path / "runs").glob("*/versions.toml")) != [], "not under way")
        supervisor.terminate()
    else:
        fork_server.kill()
    _, errors = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 1, errors
    assert f"killed by {number.name}" in errors
    assert not fork_server.is_running()
    assert "somebody was born" not in errors


@pytest.fixture
def adopts_orphans() -> Iterator[None]:
    """Only for one test: the launcher's process does so as long as it lives."""
    yield
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.usefixtures("adopts_orphans")
def test_killed_between_two_requests(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork_server = ForkServer(new_run(tmp_path, workers=2), log)
        first = fork_server.start({})
        assert fork_server._process is not None
        fork_server._process.kill()
        fork_server._process.wait()
        second = fork_server.start({})  # of which the answer must not be taken for the first one's
        try:
            until(lambda: first.poll() is not None, "who was lost is waited for")
            assert first.returncode == -signal.SIGKILL
            assert second.poll() is None
        finally:
            second.send_signal(signal.SIGKILL)
            fork_server.end()
            until(lambda: second.poll() is not None, "it lives on")
            for each in (first, second):
                each.output.close()


def test_started_by_one_who_ignores_the_end_of_children(tmp_path: Path) -> None:
    write_training(tmp_path)
    words = shlex.join([*PACELINE, "run", "train.py", "-n", "2", "--quiet"])
    done = subprocess.run(
        ["sh", "-c", f"trap '' CHLD; exec {words}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_missing_is_told_by_the_workers(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('no libcudart.so')")
    write_training(tmp_path)
    done = subprocess.run(
        [*PACELINE, "run", "train.py", "-n", "2"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "broken")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "failed: ImportError: no libcudart.so" in done.stderr
