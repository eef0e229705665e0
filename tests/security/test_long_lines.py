"""Event files and ledgers with a line that would fill the memory."""

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.checkpoints.ledger import read_ledger
from paceline.report import RunReader
from paceline.specs import PacelineError
from report.folders import empty_run

HUGE_BYTES = 1 << 29


@contextmanager
def most_memory(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit_bytes
    finally:
        tracemalloc.stop()


def test_an_event_file(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    file = run.events / "n1.jsonl"
    file.touch()
    os.truncate(file, HUGE_BYTES)  # sparse
    reader = RunReader(run)
    with most_memory(200 << 20):
        lines = reader.refresh().unreadable_lines
    assert lines > 0
    with file.open("ab") as stream:
        stream.write(b"\nnone\n")
    assert reader.refresh().unreadable_lines == lines + 1  # only what is new is read


def test_a_ledger(tmp_path: Path) -> None:
    file = tmp_path / "start-00000-part-00000.jsonl"
    file.touch()
    os.truncate(file, HUGE_BYTES)
    with most_memory(500 << 20), pytest.raises(PacelineError, match="line 1 of the ledger's file"):
        read_ledger(tmp_path)


def test_a_ledger_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "start-00000-part-00000.jsonl").symlink_to("/dev/zero")
    with most_memory(500 << 20), pytest.raises(PacelineError, match="line 1 of the ledger's file"):
        read_ledger(tmp_path)
