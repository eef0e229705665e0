"""Runs on a cluster: submitted to its scheduler, and followed to their end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from paceline.jobs.code_snapshot import what_stays_live, with_snapshot
from paceline.jobs.request import TrainingRequest
from paceline.jobs.run_lease import removed_if_refused, submitting
from paceline.jobs.training_check import check_training
from paceline.jobs.user_messages import SILENT, Messages
from paceline.jobs.waiting_job import why_waiting
from paceline.observe.versions import write_versions
from paceline.remote.mirror import mirrored
from paceline.remote.object_store import is_url
from paceline.remote.places import create_run
from paceline.report import RunReader, watch
from paceline.schedulers import submission
from paceline.schedulers.scheduler import Scheduler
from paceline.schedulers.submission import SubmittedJob, check_shared, fit_job
from paceline.specs import Job, PacelineError, Plan
from paceline.testbed.scheduler_choice import choose_scheduler

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ClusterRequest:
    """Nodes of a cluster, and the scheduler that allocates them."""

    nodes: int | None = None
    devices: int | None = None
    """Workers per node; by default the plan's, or one per GPU, or 1."""
    partition: str | None = None
    scheduler: str | None = None
    """Name of the scheduler; by default the one that answers on this machine."""
    testbed: str | None = None
    """Name of the testbed whose scheduler to use."""
    assume_shared: bool = False
    """Skip the check that the nodes see this machine's files."""
    check_here: bool = False
    """Check in this process, before submitting, that the training can be divided."""

    def chosen_scheduler(self, messages: Messages, *, dry_run: bool = False) -> Scheduler:
        """Return the scheduler to submit to."""
        return choose_scheduler(self.scheduler, self.testbed, messages.note, dry_run=dry_run)

    def check_shared(self, paths: list[Path], scheduler: Scheduler) -> None:
        """Refuse files that the nodes do not see, unless they are assumed to."""
        if not self.assume_shared:
            check_shared(paths, scheduler.site)


def submit(
    request: TrainingRequest, cluster: ClusterRequest, messages: Messages = SILENT
) -> SubmittedJob:
    """Submit a training to a cluster and return its job, which is pending or running."""
    job, plan, scheduler = _prepared(request, cluster, messages)
    return _submitted(request, job, plan, scheduler, messages)


def submit_sweep(
    request: TrainingRequest,
    cluster: ClusterRequest,
    rows: Sequence[tuple[str, ...]],
    messages: Messages = SILENT,
) -> list[SubmittedJob]:
    """Submit one run for each row of script arguments, added to the request's own."""
    job, plan, scheduler = _prepared(request, cluster, messages)
    messages.note(
        f"{len(rows)} runs, one job each: each is requeued, resumed and canceled by itself"
    )
    jobs: list[SubmittedJob] = []
    for number, row in enumerate(rows, start=1):
        changed = {
            "name": f"{job.name}-{number:0{len(str(len(rows)))}}",
            "arguments": (*job.arguments, *row),
        }
        try:
            one = job.model_copy(update=changed)
            quiet = replace(messages, note=SILENT.note) if jobs else messages
            jobs.append(_submitted(request, one, plan, scheduler, quiet))
        except PacelineError as error:
            if not jobs:
                raise
            there = ", ".join(each.id for each in jobs)
            raise PacelineError(
                f"row {number} of {len(rows)} was not submitted: {error.problem}; the rows before"
                f" it were, as {there}",
                fix=f"{error.fix}; then submit a table of the other rows",
                about=error.topic,
            ) from None
    return jobs


def _submitted(
    request: TrainingRequest, job: Job, plan: Plan, scheduler: Scheduler, messages: Messages
) -> SubmittedJob:
    with removed_if_refused(create_run(request.runs, job, plan)) as run:
        job = with_snapshot(run, job)
        run.write_job(job)
        if live := what_stays_live(run, job):
            messages.note(live)
        write_versions(run.versions_file, request.target.file)
        with mirrored(run), submitting(run) as lease:
            return SubmittedJob.submit(run, scheduler, lease)


def preview(request: TrainingRequest, cluster: ClusterRequest, messages: Messages = SILENT) -> str:
    """Return the batch script that `submit` would submit; a scheduler need not answer."""
    job, plan, scheduler = _prepared(request, cluster, messages, dry_run=True)
    return submission.preview(request.runs, job, plan, scheduler)


def _prepared(
    request: TrainingRequest, cluster: ClusterRequest, messages: Messages, *, dry_run: bool = False
) -> tuple[Job, Plan, Scheduler]:
    planned = Plan.read(request.plan) if request.plan else Plan()
    scheduler = cluster.chosen_scheduler(messages, dry_run=dry_run)
    wanted = request.job().model_copy(
        update={"nodes": cluster.nodes or planned.nodes or 1, "partition": cluster.partition}
    )
    devices = cluster.devices or planned.devices_per_node
    job = fit_job(wanted, scheduler, devices, messages.warn, dry_run=dry_run)
    if not is_url(request.runs):
        parent = Path(request.runs).absolute().parent
        cluster.check_shared([request.target.file, parent], scheduler)
    plan = request.chosen_plan(job.workers, job.workers)
    if cluster.check_here and not dry_run:
        check_training(request.target, plan.layout)
    return job, plan, scheduler


def wait_for(job: SubmittedJob, messages: Messages = SILENT) -> None:
    """Wait until a submitted run is over."""
    with mirrored(job.run, whole=True):
        _wait_for(job, messages)


def _wait_for(job: SubmittedJob, messages: Messages) -> None:
    over = until_over(job)
    if messages.live:
        watch(job.run, Console(stderr=True), until=over, why_waiting=why_waiting(job))
    while not over():
        time.sleep(_POLL_SECONDS)


def until_over(job: SubmittedJob) -> Callable[[], bool]:
    """Return a function that returns whether a submitted run is over."""
    reader = RunReader(job.run)

    def has_ended() -> bool:
        found = reader.refresh()
        return found.ended is not None and found.over

    return lambda: job.is_over(has_ended)
