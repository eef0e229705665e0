"""The lease of a run: one holder at a time, whoever comes and whatever the file says."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.jobs.run_lease import lease_held, take_lease
from paceline.lease import lease as lease_module
from paceline.lease.lease import Lease, LeaseHeld, LeaseLost, fence_of
from paceline.lease.record import JobHolder, LeaseRecord, LocalHolder, this_process
from paceline.lease.store import LeaseFolder
from paceline.schedulers import batch_heartbeat, job_lease
from paceline.specs import PacelineError, Run

RACERS = 8
ELSEWHERE = LocalHolder(host="elsewhere", machine="another", pid=4711, start_ticks=1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(batch_heartbeat, "BATCH_ALIVE_SECONDS", 0.05)


def nobody_lives(record: LeaseRecord) -> None:
    del record


def holds(run: Run, holder: LocalHolder | JobHolder) -> Lease:
    return Lease.take(LeaseFolder(run.lease), holder, nobody_lives)


def next_term(run: Run) -> int:
    """The term of the next holder, which ends at once."""
    with lease_held(run) as lease:
        return lease.term


def _race(folder: Path, start: Barrier, won: "multiprocessing.Queue[int | None]") -> None:
    run = Run(folder)
    start.wait()
    try:
        lease = take_lease(run)
    except LeaseHeld:
        won.put(None)
        start.wait()
        return
    won.put(lease.term)
    start.wait()  # a holder that ended at once would be dead for the others


@pytest.mark.parametrize("dead_before", [False, True])
def test_of_many_that_come_at_once_one_gets_it(run: Run, dead_before: bool) -> None:
    if dead_before:
        holds(run, this_process().model_copy(update={"start_ticks": 1}))
    context = multiprocessing.get_context("fork")
    start, won = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=_race, args=(run.path, start, won)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    terms = [won.get(timeout=30) for _ in racers]
    for racer in racers:
        racer.join(30)
    assert sorted(terms, key=lambda term: term or 0) == [None] * (RACERS - 1) + [1 + dead_before]
    assert not list(run.lease.glob(".*")), "a draft was left"


def test_the_living_holder_is_named_and_the_next_comes_after_it(run: Run) -> None:
    with lease_held(run) as lease:
        with pytest.raises(LeaseHeld) as refused:
            next_term(run)
        assert f"is being trained by process {os.getpid()} on " in refused.value.problem
        assert f"`kill {os.getpid()}`" in refused.value.fix
        assert refused.value.exit_code == 2
    assert next_term(run) == lease.term + 1


@contextmanager
def _other_holder(run: Run) -> Iterator["subprocess.Popen[bytes]"]:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom paceline.specs import Run\n"
        "from paceline.jobs.run_lease import take_lease\n"
        "take_lease(Run(Path(sys.argv[1])))\nprint(flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_killed_process_is_dead_even_before_it_is_reaped(run: Run) -> None:
    with _other_holder(run) as process:
        with pytest.raises(LeaseHeld, match=f"process {process.pid} on"):
            next_term(run)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert next_term(run) == 2


def test_another_process_with_the_same_id_is_not_the_holder(run: Run) -> None:
    holds(run, this_process().model_copy(update={"start_ticks": 1}))
    assert next_term(run) == 2


@pytest.mark.usefixtures("quick")
def test_on_another_node_the_heartbeat_decides(run: Run) -> None:
    elsewhere = holds(run, ELSEWHERE)
    elsewhere.keep()
    with pytest.raises(LeaseHeld, match="process 4711 on elsewhere"):
        next_term(run)
    elsewhere._stop_beating()  # its node loses power, so it does not release the lease either
    assert next_term(run) == 2


@pytest.mark.usefixtures("quick")
def test_a_holder_that_comes_back_finds_that_it_has_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended = holds(run, ELSEWHERE)
    monkeypatch.setenv("PACELINE_LEASE_TERM", "1")
    fence = fence_of(run)
    fence()
    suspended.renew()
    with lease_held(run):
        with pytest.raises(LeaseLost, match=f"process {os.getpid()} on .* trains the run now"):
            fence()
        with pytest.raises(LeaseLost):
            suspended.renew()
        assert suspended.lost
        with pytest.raises(LeaseHeld):  # its late heartbeat changed nothing
            next_term(run)


@pytest.mark.usefixtures("quick")
def test_a_job_whose_scheduler_cannot_be_asked_may_still_start(run: Run) -> None:
    holds(run, JobHolder(scheduler="lsf", job_id="123"))
    with pytest.raises(LeaseHeld) as refused:
        next_term(run)
    assert "was last given to job 123 of lsf, which may still run" in refused.value.problem
    assert f"delete {run.lease}/1.toml" in refused.value.fix
    (run.lease / "1.toml").unlink()
    assert next_term(run) == 1


@pytest.mark.usefixtures("quick")
def test_a_testbed_that_is_down_has_no_jobs(run: Run) -> None:
    holds(run, JobHolder(scheduler="slurm", testbed="is-not-up", job_id="1"))
    assert next_term(run) == 2


def test_a_job_continues_the_term_of_its_submission(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    monkeypatch.setattr(job_lease, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("sys.argv", ["job_lease", str(run.path)])
    run.job_file.touch()
    with lease_held(run) as lease:
        assert job_lease.main() == 2, "as a job that was submitted by hand meanwhile"
        assert f"is being trained by process {os.getpid()} on " in capsys.readouterr().err
        lease.hand_over(JobHolder(scheduler="slurm", testbed="box", job_id="123"))
        for _start in ("the first", "after a requeue"):
            assert (job_lease.main(), capsys.readouterr().out) == (0, "1\n")
    assert (job_lease.main(), capsys.readouterr().out) == (0, "2\n")


@given(st.binary(max_size=200))
def test_a_torn_or_foreign_file_is_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, contents: bytes
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    holds(run, ELSEWHERE)
    whole = (run.lease / "1.toml").read_bytes()
    for wrong in (contents, whole[: len(contents)], whole.replace(b"term = 1", b"term = 7")):
        (run.lease / "1.toml").write_bytes(wrong)
        with pytest.raises(PacelineError) as refused:
            LeaseFolder(run.lease).newest()
        assert "Paceline did not write it" in refused.value.problem
        assert "delete that file" in refused.value.fix


def test_a_file_that_others_can_write_is_refused(run: Run) -> None:
    holds(run, ELSEWHERE)
    (run.lease / "1.toml").chmod(0o666)
    with pytest.raises(PacelineError, match="other users can write"):
        next_term(run)
