"""Logs of a good run: nothing in them looks like an error."""

import re
from pathlib import Path

import pytest

from command import SMALL, paceline

ALARMING = re.compile(
    r"Traceback|Exception|Error|Warning|never awaited|destroyed but it is pending"
)


def alarming_lines(runs: Path) -> list[str]:
    logs = [file for file in runs.glob("*/logs/*") if file.is_file()]
    assert logs
    lines = [line for file in logs for line in file.read_text().splitlines()]
    return [line for line in lines if ALARMING.search(line)]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "options", [("-n", "3"), ("-n", "2", "--shards", "2")], ids=["replicas", "shards"]
)
def test_a_good_run_logs_nothing_alarming(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text(SMALL)
    paceline("run", "train.py", *options, "--quiet", folder=tmp_path)
    assert alarming_lines(tmp_path / "runs") == []
