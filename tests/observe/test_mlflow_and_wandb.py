"""MLflow's database and W&B's offline files, where these are installed."""

import json
import sqlite3
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from command import paceline
from paceline.specs import Run
from report.folders import interrupted_run

FORWARD = list(range(1, 101))


def follow(run: Run, *to: str) -> None:
    words = [word for each in to for word in ("--to", each)]
    paceline("watch", run.path, "--quiet", *words, folder=run.path.parent)


@pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")
@pytest.mark.nightly  # making its tables takes ten seconds
def test_mlflow_has_every_step_once_however_often_it_is_told(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    for _ in range(2):
        follow(run, "mlflow")
        with sqlite3.connect(run.path / "mlflow.db") as database:
            query = "SELECT step, value, timestamp FROM metrics WHERE key = ? ORDER BY step"
            steps, losses, times = zip(*database.execute(query, ["loss"]), strict=True)
            (failures,) = database.execute("SELECT value FROM metrics WHERE key = 'failures'")
            (found,) = database.execute("SELECT name, status FROM runs")
            (notes,) = database.execute("SELECT value FROM tags WHERE key = 'mlflow.note.content'")
        database.close()
        assert list(steps) == FORWARD
        assert losses[0] == 3.0
        assert list(times) == sorted(times)
        assert failures == (1.0,)
        assert found == (run.name, "FINISHED")
        assert "steps up to 38 are repeated" in notes[0]


@pytest.mark.skipif(find_spec("wandb") is None, reason="W&B is not installed")
def test_wandb_has_every_step_once_however_often_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "online")  # whatever the user's habits
    run = interrupted_run(tmp_path)
    for _ in range(2):
        follow(run, "wandb")
        (file,) = run.path.glob("wandb/offline-run-*/*.wandb")
        written = [Record.FromString(text) for text in records(file.read_bytes())]
        rows = [
            {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in each.history.item
            }
            for each in written
            if each.HasField("history")
        ]
        assert [row["step"] for row in rows if "loss" in row] == FORWARD
        assert all(row["_timestamp"] < run.job_file.stat().st_mtime + 10 for row in rows)
        assert any("steps up to 38 are repeated" in each.run.notes for each in written)
        assert written[-1].exit.exit_code == 0


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, which W&B writes after 7 bytes of its own."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""
