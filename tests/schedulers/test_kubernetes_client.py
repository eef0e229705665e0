"""The client of Kubernetes, against a stand-in of its API; pods are processes that wait."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.jobs.waiting_job import job_of
from paceline.lease.lease import Lease
from paceline.lease.record import this_process
from paceline.lease.store import LeaseFolder
from paceline.schedulers.kinds.kubernetes import SCHEDULER
from paceline.schedulers.scheduler import JobState
from paceline.schedulers.site import CommandFailed, Unreachable
from paceline.schedulers.submission import SubmittedJob, fit_job
from paceline.specs import Allocation, Container, Job, JobEnvironment, PacelineError, Plan, Run
from schedulers.kubernetes_stand_in import Pod, StandIn, serving, write_kubeconfig


class Waiter:
    """A node whose pods only wait, whatever their command is, and end by a signal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.environments: list[dict[str, str]] = []

    def start(self, pod: Pod) -> "subprocess.Popen[bytes]":
        self.environments.append(pod.variables())
        return subprocess.Popen(["sleep", "100"])

    def signal(self, pod: Pod, number: int) -> None:
        assert pod.process is not None
        pod.process.send_signal(number)

    def ended(self, pod: Pod) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    with serving([Waiter("n1"), Waiter("n2")], file) as found:
        yield found


def _submitted(tmp_path: Path, **changes: object) -> SubmittedJob:
    job = Job(
        name="gpt",
        folder=tmp_path,
        python=Path("/python"),
        nodes=2,
        container=Container(image="images.example/gpt:3"),
        allocation=Allocation(options=(f"--claim=files:{tmp_path}",)),
        environment=JobEnvironment(keep=("API_KEY",)),
    ).model_copy(update=changes)
    job = fit_job(job, SCHEDULER, None, print)
    run = Run.create(tmp_path, job, Plan())
    lease = Lease.take(LeaseFolder(run.lease), this_process(), lambda record: None)
    return SubmittedJob.submit(run, SCHEDULER, lease)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_from_its_submission_to_its_end(
    cluster: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "do-not-print")
    SCHEDULER.ping()
    assert SCHEDULER.summary() == "Kubernetes v1.37.0-stand-in; namespace: team-a"
    job = _submitted(tmp_path)
    assert job.id.startswith("team-a/gpt-")
    _until(lambda: job.state is JobState.RUNNING and len(SCHEDULER.nodes(job.id)) == 2)
    assert SCHEDULER.nodes(job.id) == ["n1", "n2"]
    assert job.waiting is None
    (first, *_) = (each for node in cluster.nodes for each in node.environments)  # type: ignore[attr-defined]
    assert first["API_KEY"] == "do-not-print"
    assert first["PACELINE_POD_NAMESPACE"] == "team-a"
    written = (job.run.path / "job.yaml").read_text()
    assert "do-not-print" not in written
    assert job.run.secret_file.read_text() not in written
    assert {kind for kind, _, _ in cluster.objects} == {"Job", "Service", "Secret"}
    job.cancel()
    _until(lambda: not cluster.pods)
    assert job.state is JobState.UNKNOWN
    assert cluster.objects == {}
    assert SCHEDULER.cancel_command(job.id) == (
        f"kubectl delete job {job.id.removeprefix('team-a/')} --namespace team-a"
        " --cascade=foreground"
    )


def test_an_evicted_pod_is_replaced_and_a_failed_one_too_but_not_for_ever(
    cluster: StandIn, tmp_path: Path
) -> None:
    job = _submitted(tmp_path, nodes=1)
    _until(lambda: len(cluster.history) == 1)
    cluster.evict(0)
    _until(lambda: len(cluster.history) == 2)
    assert cluster.failures == {}
    for failures in (1, 2, 3):  # the plan's attempts and one more
        _until(lambda: bool(cluster.pods and cluster.pods[0].process))
        with cluster.lock:
            (pod,) = cluster.pods
            assert pod.node is not None
            pod.node.signal(pod, signal.SIGKILL)
        _until(lambda failures=failures: list(cluster.failures.values()) == [failures])  # type: ignore[misc]
    assert job.state is JobState.FAILED


def test_why_a_job_waits(cluster: StandIn, tmp_path: Path) -> None:
    """`paceline watch` says it: before, nothing was known of pods."""
    cluster.cordoned = {"n1", "n2"}
    job = _submitted(tmp_path)
    _until(lambda: len(cluster.pods) == 2)
    assert job.state is JobState.PENDING
    watched = job_of(job.run)
    assert watched is not None
    assert watched.waiting is not None
    assert watched.waiting.sentence("Kubernetes") == (
        "the job waits: no node can take a pod: 0/4 nodes are available: 4 Insufficient cpu."
        " (Kubernetes: Unschedulable)"
    )


def test_queues_of_kueue(cluster: StandIn, tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="which this cluster does not have"):
        _submitted(tmp_path, partition="team")
    cluster.queues = ["day", "night"]
    with pytest.raises(PacelineError, match=r"no queue team(.|\n)*one of: day, night"):
        _submitted(tmp_path, partition="team")
    job = _submitted(tmp_path, partition="night")
    assert job.state is JobState.PENDING
    assert job.waiting is not None
    assert "its queue night has not admitted it: couldn't assign" in job.waiting.reason
    assert cluster.pods == []


def test_what_the_cluster_refuses(cluster: StandIn, tmp_path: Path) -> None:
    job = _submitted(tmp_path)
    script = job.run.path / "job.yaml"
    with pytest.raises(CommandFailed, match=r"refused `create job`: .* already exists"):
        SCHEDULER.submit(script)
    (kind, space, name), _ = next(iter(cluster.objects.items()))
    del cluster.objects[kind, space, name]  # its Service is left
    with pytest.raises(CommandFailed, match=r"refused `create service`: .* already exists"):
        SCHEDULER.submit(script)
    assert (kind, space, name) not in cluster.objects


def test_a_cluster_that_cannot_be_used(
    cluster: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(os.environ["KUBECONFIG"]).read_text()
    for name in ("missing", "stranger", "gone"):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / name))
        if name == "stranger":
            (tmp_path / name).write_text(text.replace("stand-in-token", "no-token"))
            with pytest.raises(CommandFailed, match=r"refused `version`: Unauthorized"):
                SCHEDULER.ping()
            continue
        if name == "gone":
            write_kubeconfig(tmp_path / name, port=1)
        said = "no usable kubeconfig(.|\n)*KUBECONFIG" if name == "missing" else "not reachable"
        with pytest.raises(Unreachable, match=said):
            SCHEDULER.ping()
