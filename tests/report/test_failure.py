"""Who failed first, and what it printed."""

from pathlib import Path

import pytest

from paceline.report import FailureCause, RunReader, cause
from paceline.specs import JOINS, Run
from report.folders import empty_run, ended, failed, failed_run, realistic_run, say, started


def found(run: Run) -> FailureCause:
    result = cause(RunReader(run).refresh(), run)
    assert result is not None
    return result


def test_a_run_that_went_well_has_none(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=20)
    assert cause(RunReader(run).refresh(), run) is None


def test_the_worker_that_lost_its_peer_is_not_the_cause(tmp_path: Path) -> None:
    result = found(failed_run(tmp_path))
    assert (result.node, result.rank, result.where) == ("n3", 2, "worker 2 on node n3")
    assert "could not allocate" in result.message
    assert result.log_lines[0] == "step 100: all well"
    assert result.log_lines[-1] == result.message


def test_of_several_the_first_is_the_cause(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(0, "second", at=20.0))
    say(run, failed(3, "first", at=10.0))
    assert found(run).message == "first"


def test_only_that_ranks_last_lines(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(1, "broke", at=1.0))
    lines = [f" {rank}: line {number}\n" for number in range(40) for rank in (1, 11)]
    (run.logs / "n2.log").write_text("".join(lines) + " 1: \x1b[31mred\x1b[0m \x07end\n11: no\n")
    result = found(run)
    assert result.log_lines == [*(f"line {number}" for number in range(26, 40)), "red end"]
    assert result.log_file == run.logs / "n2.log"


def test_a_worker_that_came_in_place_of_another(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(JOINS, "broke", at=1.0))
    (run.logs / "n0.log").write_text("1: well\njoins: here I am\njoins: broke\n")
    result = found(run)
    assert result.where == "a worker that had joined on node n0"
    assert result.log_lines == ["here I am", "broke"]


@pytest.mark.parametrize(
    ("line", "node", "rank", "message"),
    [
        (
            "srun: error: n2: task 1: Exited with exit code 3",
            "n2",
            1,
            "Exited with exit code 3",
        ),
        ("srun: error: n3: task 2: Killed", "n3", 2, "Killed"),
        ("srun: error: gpu-a1: tasks 4-7: Segmentation fault", "gpu-a1", 4, "Segmentation fault"),
        ("srun: error: n[2-3]: tasks 1,2: Aborted", "n2", 1, "Aborted"),
        ("srun: error: Node failure on n4", "n4", None, "Node failure on n4"),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME"
            " LIMIT ***",
            "n1",
            None,
            "CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT",
        ),
    ],
)
def test_a_worker_that_said_nothing_is_named_by_srun(
    tmp_path: Path, line: str, node: str, rank: int | None, message: str
) -> None:
    run = empty_run(tmp_path)
    say(run, ended(1), file="batch")
    (run.logs / "batch.log").write_text(
        f"starting\n{line}\nsrun: error: n1: task 0: Terminated\nsrun: Force Terminated job\n"
    )
    result = found(run)
    assert (result.node, result.rank, result.message) == (node, rank, message)


def test_srun_names_the_killed_worker_that_the_others_lost(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    for rank in (0, 1):
        say(run, failed(rank, "Connection reset by peer", at=1.0, lost_peer=True))
    say(run, ended(1), file="batch")
    (run.logs / "batch.log").write_text(
        "srun: error: n[1-2]: tasks 0-1: Exited with exit code 1\n"
        "srun: error: n3: task 2: Out Of Memory\n"
    )
    (run.logs / "n3.log").write_text("2: loading 80 GB\n")
    result = found(run)
    assert (result.rank, result.message) == (2, "Out Of Memory")
    assert result.log_lines == ["loading 80 GB"]


def test_where_nothing_names_it_the_exit_code_and_the_log_are_given(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    say(run, ended(7))
    (run.logs / "batch.log").write_text("module load: unknown module\n")
    result = found(run)
    assert (result.where, result.node, result.rank) == ("the job", None, None)
    assert "exit code 7" in result.message
    assert result.log_lines == ["module load: unknown module"]


def test_a_lost_peer_is_better_than_nothing(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(1, "Connection reset by peer", at=1.0, lost_peer=True))
    assert found(run).rank == 1


def test_a_nodes_name_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    (tmp_path / "private.log").write_text("0: not for the page\n")
    event = failed(0, "x", at=1.0).model_copy(update={"node": "../../private"})
    say(run, event, file="n1")
    assert found(run).log_lines == []
