"""Whether the holder of a run's lease is alive: a process here or elsewhere, or a job."""

from collections.abc import Callable

from paceline.cluster.process import is_running
from paceline.lease.lease import is_renewed
from paceline.lease.record import JobHolder, LeaseRecord, LocalHolder, this_machine
from paceline.lease.store import LeaseStore
from paceline.schedulers.batch_heartbeat import script_lives
from paceline.schedulers.scheduler import JobState, Scheduler
from paceline.specs import PacelineError, Run

SchedulerOf = Callable[[JobHolder], Scheduler]
"""Returns the scheduler that has a job; raises if it cannot be reached."""


def living_trainer(
    run: Run, store: LeaseStore, record: LeaseRecord, scheduler_of: SchedulerOf
) -> PacelineError | None:
    """Return the refusal that names the run's living trainer; None if that trainer is dead."""
    holder = record.holder
    if isinstance(holder, LocalHolder):
        alive = (
            is_running(holder.pid, holder.start_ticks)
            if holder.machine == this_machine()
            else is_renewed(store, record)
        )
        return _local_refusal(run, record, holder) if alive else None
    return _job_refusal(run, record, holder, scheduler_of)


def _local_refusal(run: Run, record: LeaseRecord, holder: LocalHolder) -> PacelineError:
    return PacelineError(
        f"{run.place} is being trained by {holder} since {record.since}",
        fix=f"wait for it, or stop it: Ctrl-C, or `kill {holder.pid}` on {holder.host};"
        " `paceline watch` shows its progress",
    )


def _job_refusal(
    run: Run, record: LeaseRecord, holder: JobHolder, scheduler_of: SchedulerOf
) -> PacelineError | None:
    problem = ""
    state: JobState | None = None
    try:
        scheduler = scheduler_of(holder)
        state = scheduler.state(holder.job_id)
        if not state.is_over:
            return PacelineError(
                f"the run's job {holder.job_id} is still {state.value} on {scheduler.where}",
                fix=f"wait for it, or end it with `{scheduler.cancel_command(holder.job_id)}`",
            )
    except PacelineError as error:
        problem = error.problem
    if state in (JobState.COMPLETED, JobState.FAILED):
        return None
    if script_lives(run):
        return PacelineError(
            f"{run.place} is being trained by {holder} since {record.since}: its batch script sends"
            " heartbeats",
            fix="wait for it, or end that job",
        )
    # A testbed that is down has ended all its processes. Another scheduler may still start the job.
    if state is JobState.UNKNOWN or holder.testbed is not None:
        return None
    return PacelineError(
        f"{run.place} was last given to {holder}, which may still run: {problem}",
        fix="resume it on a machine where the scheduler answers; if you know that the job has"
        f" ended, delete {run.lease / f'{record.term}.toml'}",
    )
