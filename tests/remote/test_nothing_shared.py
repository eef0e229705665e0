"""Nodes of a real Slurm that share nothing: a run in a bucket goes on without a lost node."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command import PACELINE, write_training
from data.s3_server import serving
from paceline import testbed
from paceline.testbed.testbed_spec import HEAD, HEAD_ADDRESS
from remote.runs_on_disk import RunsOnDisk

pytestmark = [pytest.mark.slurm, pytest.mark.nightly, pytest.mark.timeout(900)]

BOX = "apart-box"
PACED = """
import dataclasses, time
quick = training

def loop():
    with paceline.start(dataclasses.replace(quick(), steps=STEPS)) as trainer:
        for batch in trainer:
            trainer.step(batch)
            time.sleep(0.1)
"""


@dataclass
class Cluster(RunsOnDisk):
    """A testbed whose nodes have disks of their own, and an S3 server on its head."""

    environment: dict[str, str]

    def call(self, *words: str | Path, node: str = HEAD, seconds: float = 400) -> str:
        done = subprocess.run(
            [*testbed.command_prefix(BOX, node), "env", f"--chdir={self.folder}", *words],
            env=os.environ | testbed.environment(BOX) | self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def paceline(self, *words: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.call(*PACELINE, *words, "--json"))
        return said


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if BOX in testbed.running():
        testbed.down(BOX)  # from a session that was killed
    with tempfile.TemporaryDirectory(prefix="paceline-test-", dir="/var/tmp") as name:
        folder = Path(name)
        scratch, buckets = folder / "scratch", folder / "s3"
        scratch.mkdir(mode=0o700)
        (buckets / "bucket").mkdir(parents=True)
        testbed.up(testbed.TestbedSpec(name=BOX, nodes=4, scratch=str(scratch)))
        try:
            prefix = testbed.command_prefix(BOX)
            with serving(buckets, written_to=True, address=HEAD_ADDRESS, prefix=prefix) as server:
                yield Cluster(folder, server.environment | {"PACELINE_SCRATCH": str(scratch)})
        finally:
            testbed.down(BOX)


def test_a_node_is_lost_then_all_and_other_nodes_resume(cluster: Cluster) -> None:
    """Before, `submit` needed a folder that all nodes share."""
    write_training(cluster.folder, PACED.replace("STEPS", "250"))
    common = ("--ledger", "--save-every", "25", "--faults", "lease_seconds=5")
    where = ("--runs", "s3://bucket/runs", "--scheduler", "slurm")
    said = cluster.paceline("submit", "train.py:loop", "--nodes", "3", *where, *common)
    url, job = said["run"], said["job"]
    cluster.until(url, regroups=0, step=30, seconds=200)
    copies = {node: cluster.call("find", "scratch", node=node) for node in ("n1", "n2", "n4")}
    assert "events/n1.jsonl" in copies["n1"]
    assert "events/n1.jsonl" not in copies["n2"]
    assert copies["n4"] == "scratch\n"
    testbed.stop(BOX, "n2")
    state = cluster.until(url, regroups=1, step=80, seconds=200)
    (regroup,) = state.regroups
    assert (regroup.workers, regroup.lost, regroup.source) == (2, [1], "members")
    for node in ("n1", "n3"):  # with the batch script, and all copies of the run
        testbed.stop(BOX, node)
    cluster.call("scancel", job)
    for node in ("n1", "n2", "n3"):
        testbed.start(BOX, node)
    ended = cluster.paceline("resume", url, "--nodes", "4", "--scheduler", "slurm", "--wait")
    assert (ended["status"], ended["steps"]) == ("finished", 250)
    ledger = cluster.paceline("ledger", url)
    assert ledger["exact"]
    assert sum(epoch["derived"] for epoch in ledger["epochs"]) > 0
    assert not [path for path in cluster.folder.rglob("*") if "secret" in path.name]
