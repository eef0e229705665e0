"""Pods from a manifest, as processes on testbed nodes that share nothing: evicted and replaced."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from data import s3_server
from paceline import testbed
from paceline.specs import STOPPED_EXIT_CODE
from paceline.testbed.testbed_spec import HEAD, HEAD_ADDRESS
from remote.runs_on_disk import RunsOnDisk
from schedulers import kubernetes_stand_in
from schedulers.kubernetes_stand_in import StandIn
from schedulers.testbed_pods import TestbedNode, listener_on_head

pytestmark = [pytest.mark.slurm, pytest.mark.nightly, pytest.mark.timeout(900)]

BOX = "pod-box"
PAGE = Path(__file__).parents[2] / "docs/kubernetes.md"
RUN = "gpt-20260101-120000"
"""The page's name of the run; in the test, that of the run that it has started."""


@dataclass
class Cluster(RunsOnDisk):
    """A testbed of five nodes, an S3 server on its head, and a stand-in of Kubernetes."""

    environment: dict[str, str]
    kubernetes: StandIn

    def call(self, command: str, seconds: float = 400) -> str:
        there = [*testbed.command_prefix(BOX, HEAD), "env", f"--chdir={self.folder}"]
        done = subprocess.run(
            [*there, "bash", "-c", command],
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        print(f"$ {command}\n{done.stdout}")
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if BOX in testbed.running():
        testbed.down(BOX)  # from a session that was killed
    with tempfile.TemporaryDirectory(prefix="paceline-test-", dir="/var/tmp") as name:
        folder = Path(name)
        scratch, buckets, logs = folder / "scratch", folder / "s3", folder / "logs"
        scratch.mkdir(mode=0o700)
        logs.mkdir()
        (buckets / "bucket").mkdir(parents=True)
        testbed.up(testbed.TestbedSpec(name=BOX, nodes=5, scratch=str(scratch)))
        try:
            prefix, config = testbed.command_prefix(BOX), folder / "kubeconfig"
            nodes = [TestbedNode(BOX, f"n{each}", scratch, logs) for each in range(1, 6)]
            with (
                s3_server.serving(
                    buckets, written_to=True, address=HEAD_ADDRESS, prefix=prefix
                ) as server,
                kubernetes_stand_in.serving([*nodes], config, listener_on_head(BOX)) as kubernetes,
            ):
                own = {
                    "PACELINE_SCRATCH": str(scratch),
                    "KUBECONFIG": str(config),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                }
                try:
                    yield Cluster(folder, server.environment | own, kubernetes)
                finally:
                    for log in sorted(logs.iterdir()):
                        print(f"--- {log.name}\n{log.read_text()[-3000:]}")
        finally:
            testbed.down(BOX)


def test_the_page_says_what_happens(cluster: Cluster) -> None:
    """Before, there was no way to a cluster without Slurm."""
    text, kubernetes, run = PAGE.read_text(), cluster.kubernetes, ""
    for name, kind in (("train.py", "python"), ("site.toml", "toml")):
        found = re.search(rf"<!-- file: {name} -->\n```{kind}\n(.*?)```", text, re.DOTALL)
        assert found
        (cluster.folder / name).write_text(found[1])
        (cluster.folder / name).chmod(0o600)
    for command, printed in transcript(text):
        if command.startswith("kubectl drain"):
            cluster.until(run, regroups=0, step=30, seconds=240)
            left = kubernetes.evict(2)
            # Without the pod, and with another.
            state = cluster.until(run, regroups=2, step=100, seconds=240)
            assert [each.workers for each in state.regroups] == [3, 4]
            assert (2, left) in kubernetes.history
            kubernetes.cordoned.clear()
            kubernetes.evict(0)  # the first worker's, where the others had met
            state = cluster.until(run, regroups=4, step=200, seconds=240)
            assert [each.workers for each in state.regroups] == [3, 4, 3, 4]
            assert len(kubernetes.history) == 6
            kubernetes.cordoned.clear()
        elif command.startswith("kubectl delete job"):
            ((_, space, name), _) = next(iter(kubernetes.objects.items()))
            with kubernetes.lock:
                kubernetes.delete("Job", space, name)
            deadline = time.monotonic() + 100
            while kubernetes.pods:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            state = cluster.state(run)
            assert state.checkpoints[-1].step == state.step[-1]  # saved before the end
            signals = cluster.folder / "s3" / run.removeprefix("s3://") / "signals"
            assert (signals / "outcome").read_text() == f"{STOPPED_EXIT_CODE}\n"
            assert (signals / "requeue").exists()
        else:
            said = cluster.call(command.replace(RUN, run.rpartition("/")[2]))
            started = re.search(r"^run: (s3://\S+)", said, re.MULTILINE)
            run = started[1] if started else run
            for line in printed:
                pattern = ".*".join(re.escape(part) for part in line.split("…"))
                assert re.search(f"^{pattern} *$", said, re.MULTILINE), line
    assert kubernetes.failures == {}
    ledger = json.loads(cluster.call(f"paceline ledger {run} --json"))
    assert ledger["exact"]
    assert not [path for path in cluster.folder.rglob("*") if "secret" in path.name]
    secret = "paceline-test-secret"
    stored = [path for path in (cluster.folder / "s3").rglob("*") if path.is_file()]
    assert not [path for path in stored if secret.encode() in path.read_bytes()]


def transcript(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the page with the lines that it must print."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = part.rstrip("\n").splitlines()
            yield command, printed
