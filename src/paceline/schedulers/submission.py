"""Submission of a run to a scheduler, and its job until the end."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paceline.cluster.file_systems import LOCAL, MEMORY, file_system
from paceline.lease.lease import Lease
from paceline.lease.record import JobHolder
from paceline.observe.event_writer import EventWriter
from paceline.remote.object_store import is_url
from paceline.remote.places import SECRET_VARIABLE, publish, scratch_folder
from paceline.schedulers.container_runtime import runtime_here
from paceline.schedulers.scheduler import JobState, Scheduler, Waiting
from paceline.schedulers.site import CommandFailed, Site, Unreachable
from paceline.specs import Ended, Job, PacelineError, Plan, Run
from paceline.specs.owned_files import open_owned, read_bounded, write_owned

_ASK_SECONDS = 2.0
"""Seconds between two queries about a job: the scheduler serves all users."""
_MOST_ID_BYTES = 1024


def check_shared(paths: list[Path], site: Site) -> None:
    """Refuse files that the nodes of the cluster cannot see."""
    for path in paths:
        kind = file_system(path)
        if kind in MEMORY or (kind in LOCAL and not site.shares_files):
            raise PacelineError(
                f"{path} is on a {kind} file system of this machine, which the nodes of the"
                " cluster do not see",
                fix="move it to a folder that all nodes share, such as your home or project"
                " folder (--runs DIR for the run's folder); if this disk is exported to the"
                " nodes, add --assume-shared",
            )


def fit_job(
    job: Job,
    scheduler: Scheduler,
    devices: int | None,
    warn: Callable[[str], None],
    *,
    dry_run: bool = False,
) -> Job:
    """Return the job as the site allows it; `warn` gets the warnings.

    `devices`: workers per node. `dry_run`: skip the checks if no scheduler answers.
    """
    scheduler.options(job.allocation)  # refuses what it cannot say
    if job.container and not scheduler.runs_containers:
        raise PacelineError(
            f"--container {job.container.image} was given, but Paceline's batch script for"
            f" {scheduler.title} does not start containers",
            fix="leave it out, or start the containers in a script of your own from --dry-run",
        )
    job = _with_runtime(job, scheduler)
    try:
        job, warnings = scheduler.fit(job, devices)
    except Unreachable as error:
        if not dry_run:
            raise
        job = job.model_copy(update={"devices_per_node": devices or 1})
        warnings = [f"{error.problem}; the site's limits are not checked"]
    for warning in warnings:
        warn(warning)
    return job.model_copy(update={"scheduler": scheduler.name})


def _with_runtime(job: Job, scheduler: Scheduler) -> Job:
    container = job.container
    if container is None or container.runtime is not None or not scheduler.needs_runtime:
        return job
    chosen = container.model_copy(update={"runtime": runtime_here()})
    return job.model_copy(update={"container": chosen})


def preview(parent: str | Path, job: Job, plan: Plan, scheduler: Scheduler) -> str:
    """Return the batch script that `submit` would write, without creating anything."""
    name = f"{job.name}-TIME"
    if is_url(parent):
        run = Run(scratch_folder() / "TOKEN" / name, copied_from=f"{parent}/{name}")
    else:
        run = Run(Path(parent).absolute() / name)
    return scheduler.script(job, _on_nodes(run, scheduler), plan.faults)


class SubmittedJob:
    """A run's job in a scheduler's queue."""

    def __init__(self, run: Run, scheduler: Scheduler, job_id: str) -> None:
        self.run, self.scheduler, self.id = run, scheduler, job_id
        self._asked = 0.0

    @classmethod
    def submit(cls, run: Run, scheduler: Scheduler, lease: Lease) -> "SubmittedJob":
        """Write the run's batch script into its folder, submit it and hand the lease over."""
        script = run.path / scheduler.script_name
        there = _on_nodes(run, scheduler)
        write_owned(script, scheduler.script(run.job, there, run.plan.faults))
        # The scheduler appends to it, and would create it with the modes of the user's umask.
        open_owned(run.batch_log, "a").close()
        for ended in (run.outcome_file, run.requeue_file):  # how the run's last job ended
            ended.unlink(missing_ok=True)
        publish(run)
        job_id = _with_secret(run, scheduler).submit(script)
        write_owned(run.job_id_file, job_id)
        lease.hand_over(
            JobHolder(scheduler=scheduler.name, testbed=scheduler.site.testbed, job_id=job_id)
        )
        return cls(run, scheduler, job_id)

    @classmethod
    def of_run(cls, run: Run, scheduler: Scheduler) -> "SubmittedJob | None":
        """Return the run's job if it has not ended."""
        if not run.job_id_file.exists():
            return None
        job = cls(run, scheduler, _job_id(run))
        return None if job.state.is_over else job

    @property
    def state(self) -> JobState:
        """The job's current state, from the scheduler."""
        return self.scheduler.state(self.id)

    @property
    def waiting(self) -> Waiting | None:
        """Why the job waits; None if it does not, or the scheduler does not say."""
        try:
            return self.scheduler.waiting(self.id)
        except (CommandFailed, Unreachable):
            return None

    def is_over(self, has_ended: Callable[[], bool]) -> bool:
        """Whether the run has ended.

        `has_ended`: whether the run's events record the end. If the job is over and they do not,
        the batch script was killed, and this function writes the end in its place. While the
        scheduler does not answer, the run has not ended.
        """
        if has_ended():
            return True
        if time.monotonic() - self._asked < _ASK_SECONDS:
            return False
        self._asked = time.monotonic()
        try:
            state = self.state
        except (CommandFailed, Unreachable):  # such as a controller that is being restarted
            return False
        if not state.is_over:
            return False
        if not has_ended():
            self._write_end(state)
        return True

    def cancel(self) -> None:
        """End the job."""
        self.scheduler.cancel(self.id)

    def _write_end(self, state: JobState) -> None:
        newest = self.run.newest_generation
        first = self.run.job.first_generation
        EventWriter(self.run.events, "submit").write(
            Ended(
                time=time.time(),
                node="submit",
                generation=first if newest is None else max(newest, first),
                exit_code=0 if state is JobState.COMPLETED else 1,
            )
        )


def _on_nodes(run: Run, scheduler: Scheduler) -> Run:
    """Return the run as the nodes have it: the same folder, or copies on their own disks."""
    if run.url is None:
        return run
    if scheduler.needs_shared_files:
        raise PacelineError(
            f"{run.url} is in an object store, but Paceline does not know how to train such a run"
            f" with {scheduler.title}",
            fix="give a folder that all nodes share with --runs DIR",
        )
    here = run.path.parent
    return Run(here.with_name(f"{here.name}-node") / run.name, copied_from=run.url)


def _with_secret(run: Run, scheduler: Scheduler) -> Scheduler:
    """Return the scheduler that hands the run's secret to a job that cannot read its folder."""
    if run.url is None:
        return scheduler
    secret = {SECRET_VARIABLE: run.secret_file.read_text()}
    return scheduler.at(
        replace(scheduler.site, environment=dict(scheduler.site.environment) | secret)
    )


def _job_id(run: Run) -> str:
    return read_bounded(run.job_id_file, _MOST_ID_BYTES).decode().strip()
