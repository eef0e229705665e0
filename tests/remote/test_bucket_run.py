"""A run in a bucket of a real S3 server: trained, read and resumed without a shared folder."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command import PACELINE, paceline, paceline_json, write_training
from data.s3_server import S3Server
from paceline.remote.object_store import ObjectStore

LONG = """
import dataclasses, time
short = training

def training():
    return dataclasses.replace(short(), steps=60)

def loop():
    with paceline.start(training()) as trainer:
        for batch in trainer:
            trainer.step(batch)
            time.sleep(0.05)
"""


@pytest.fixture
def parent(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A place of the test's own, with copies in a folder of the test's own."""
    monkeypatch.setenv("PACELINE_SCRATCH", str(tmp_path / "scratch"))
    return bucket


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_machine_is_lost_and_another_resumes(
    parent: str, bucket_server: S3Server, tmp_path: Path
) -> None:
    """Before, `--runs s3://…` made a folder `s3:` here, and nothing left this machine."""
    write_training(tmp_path, LONG)
    words = ("run", "train.py:loop", "-n", "2", "--save-every", "10", "--ledger", "--runs", parent)
    first = subprocess.Popen([*PACELINE, *words, "--quiet"], cwd=tmp_path)
    bucket = bucket_server.folder / "bucket" / tmp_path.name
    deadline = time.monotonic() + 60
    while not list(bucket.glob("*/checkpoints/*/manifest.json.sha256")):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)  # and with it its workers
    first.wait()
    (folder,) = bucket.iterdir()
    url = f"{parent}/{folder.name}"
    # As on another machine: nothing of the first one's disk is used.
    other = {"PACELINE_SCRATCH": str(tmp_path / "other-scratch")}
    result = paceline_json("resume", url, "-n", "1", folder=tmp_path, **other)
    assert (result["status"], result["steps"]) == ("finished", 60)
    assert not os.listdir(tmp_path / "other-scratch")  # noqa: PTH208 -- names alone
    assert not (tmp_path / "s3:").exists()
    assert paceline_json("ledger", url, folder=tmp_path)["exact"]
    report = paceline_json("report", url, folder=tmp_path)
    assert report["status"] == "finished"
    assert not {"secret", "object-store"} & set(ObjectStore(url).top()[0])
    assert "has taken all its 60 steps" in paceline("resume", url, folder=tmp_path, expect=2).stderr


@pytest.mark.nightly
def test_one_trainer_at_a_time(parent: str, bucket_server: S3Server, tmp_path: Path) -> None:
    write_training(tmp_path, LONG)
    words = ("run", "train.py:loop", "-n", "1", "--runs", parent, "--no-check")
    first = subprocess.Popen([*PACELINE, *words, "--quiet"], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        bucket = bucket_server.folder / "bucket" / tmp_path.name
        while not list(bucket.glob("*/signals/lease/1.toml")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (folder,) = bucket.iterdir()
        said = paceline("resume", f"{parent}/{folder.name}", folder=tmp_path, expect=2).stderr
    finally:
        first.terminate()
        first.wait()
    assert f"is being trained by process {first.pid}" in said


def test_a_bucket_that_is_not_there(parent: str, tmp_path: Path) -> None:
    del parent
    write_training(tmp_path)
    words = ("run", "train.py", "--runs", "s3://nothing/runs")
    said = paceline(*words, folder=tmp_path, expect=2).stderr
    assert "s3://nothing/runs/" in said
    assert "cannot be written" in said
    said = paceline("report", "s3://bucket/nothing", folder=tmp_path, expect=2).stderr
    assert "s3://bucket/nothing is not a run: it has no job.toml" in said
    said = paceline("probe", "--runs", "s3://bucket/runs", folder=tmp_path, expect=2).stderr
    assert "this command needs a directory" in said
