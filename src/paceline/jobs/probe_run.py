"""A probe of devices and links, on this machine or on a cluster."""

import datetime
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from paceline.cluster.probe.assemble import cluster_of
from paceline.cluster.probe.probe_folder import done_part, read_probed
from paceline.jobs.cluster_run import ClusterRequest, until_over
from paceline.jobs.failed_run import refuse_failed
from paceline.jobs.run_lease import lease_held, removed_if_refused, submitting
from paceline.jobs.user_messages import SILENT, Messages
from paceline.launch import room
from paceline.launch.supervisor import LocalLaunch
from paceline.launch.target import Target
from paceline.observe.versions import write_versions
from paceline.report import RunReader
from paceline.schedulers.submission import SubmittedJob, fit_job
from paceline.specs import (
    Allocation,
    Cluster,
    Job,
    Layout,
    Limits,
    PacelineError,
    Plan,
    Run,
    TrainingProfile,
)
from paceline.specs.measurements.kernels import KernelTable

LONGEST_MINUTES = 10
"""Time limit of a probe's job; a probe takes less than five minutes."""
_POLL_SECONDS = 0.1

Advance = Callable[[float], None]
"""Gets the fraction of the probe that is done."""


@dataclass(frozen=True)
class ProbeRequest:
    """What to probe, and the settings of its job."""

    target: Target | None = None
    """A training whose model the devices also time."""
    workers: int | None = None
    """Workers on this machine; by default one per accelerator, or 1."""
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    """Nodes to probe; by default this machine."""
    allocation: Allocation = field(default_factory=Allocation)
    """What the site asks of the job."""
    kernel_seconds: float | None = None
    """Time to measure kernels; None: the probe's default."""
    runs: Path = Path("runs")
    port: int | None = None

    @property
    def here(self) -> bool:
        """Whether to probe this machine."""
        cluster = self.cluster
        return cluster.nodes is None and cluster.testbed is None and cluster.scheduler is None

    def job(self) -> Job:
        """Return the job on one node."""
        return Job(
            name="probe",
            probe=True,
            kernel_seconds=self.kernel_seconds,
            train=self.target.file if self.target else None,
            function=self.target.function if self.target else "training",
            arguments=self.target.arguments if self.target else (),
            port=self.port,
            folder=Path.cwd(),
            python=Path(sys.executable),
            partition=self.cluster.partition,
            allocation=self.allocation,
        )

    def check(self) -> None:
        """Refuse options of the one place for the other."""
        cluster = self.cluster
        if not self.here and self.workers is not None:
            raise PacelineError(
                f"-n {self.workers} was given, which is for a probe here, with nodes of a cluster",
                fix="use --devices N for the workers of each node",
            )
        devices, partition = cluster.devices, cluster.partition
        given = "--devices" if devices is not None else "--partition" if partition else None
        if self.here and given:
            raise PacelineError(
                f"{given} was given without --nodes, so this machine would be probed",
                fix="add --nodes N to probe a cluster, or use -n N for the workers here",
            )


@dataclass(frozen=True)
class ProbeResult:
    """What a probe measured."""

    cluster: Cluster
    profile: TrainingProfile | None
    """The training's times, if the probe had one."""
    kernels: KernelTable | None
    """The device's kernels, unless they were left out."""
    kernels_cached: bool
    """Whether an earlier probe measured them."""
    run: Run
    seconds: float


def probe(
    request: ProbeRequest,
    messages: Messages = SILENT,
    advance: Advance = lambda done: None,
) -> ProbeResult:
    """Measure devices and links, and return the cluster that they make up."""
    begin = time.monotonic()
    request.check()
    run = (_probed_here if request.here else _probed_there)(request, messages, advance)
    refuse_failed(run, RunReader(run).refresh())
    probed = read_probed(run)
    cluster = cluster_of(probed, datetime.date.today())
    return ProbeResult(
        cluster,
        probed.profile,
        probed.kernels,
        probed.kernels_cached,
        run,
        time.monotonic() - begin,
    )


def _probed_here(request: ProbeRequest, messages: Messages, advance: Advance) -> Run:
    """Probe with workers on this machine."""
    accelerators = room.accelerators()
    job = request.job().model_copy(
        update={"devices_per_node": request.workers or max(1, accelerators)}
    )
    if warning := room.check_room(job.workers, accelerators):
        messages.note(warning)
    run = _new_run(job, request.runs)
    with lease_held(run) as lease:
        launch = LocalLaunch(run, lease)
        try:
            _follow(run, lambda: launch.poll() is not None, advance)
        finally:
            launch.kill()
    return run


def _probed_there(request: ProbeRequest, messages: Messages, advance: Advance) -> Run:
    """Probe with workers on the nodes of a cluster."""
    cluster = request.cluster
    scheduler = cluster.chosen_scheduler(messages)
    job = request.job().model_copy(
        update={"nodes": cluster.nodes or 1, "limits": Limits(minutes=LONGEST_MINUTES)}
    )
    job = fit_job(job, scheduler, cluster.devices, messages.warn)
    files = [job.train] if job.train else []
    cluster.check_shared([*files, request.runs.absolute().parent], scheduler)
    run = _new_run(job, request.runs)
    with removed_if_refused(run), submitting(run) as lease:
        submitted = SubmittedJob.submit(run, scheduler, lease)
    messages.note(f"job {submitted.id} submitted to {scheduler.where}")
    try:
        _follow(run, until_over(submitted), advance)
    except KeyboardInterrupt:
        submitted.cancel()
        raise
    return run


def _new_run(job: Job, runs: Path) -> Run:
    run = Run.create(runs, job, Plan(layout=Layout(replicas=job.workers)))
    write_versions(run.versions_file, None)
    return run


def _follow(run: Run, over: Callable[[], bool], advance: Advance) -> None:
    while not over():
        advance(done_part(run))
        time.sleep(_POLL_SECONDS)
