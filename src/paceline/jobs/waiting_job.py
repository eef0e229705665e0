"""Why a run that was submitted is still waiting, for those who watch it."""

import time
from collections.abc import Callable

from paceline.jobs.run_lease import scheduler_of
from paceline.lease.record import JobHolder
from paceline.lease.store import LeaseFolder
from paceline.schedulers.submission import SubmittedJob
from paceline.specs import PacelineError, Run

_ASK_SECONDS = 5.0
"""Seconds between two queries: the scheduler serves all users."""


def why_waiting(job: SubmittedJob | None) -> Callable[[], str | None]:
    """Return a function that says why a job waits; it asks the scheduler now and then."""
    asked, said = -_ASK_SECONDS, None

    def words() -> str | None:
        nonlocal asked, said
        if job is not None and time.monotonic() - asked >= _ASK_SECONDS:
            asked = time.monotonic()
            found = job.waiting
            said = found.sentence(job.scheduler.title) if found else None
        return said

    return words


def job_of(run: Run) -> SubmittedJob | None:
    """Return the job that trains a run, by the run's lease; None if this machine has no access."""
    try:
        record = LeaseFolder(run.lease).newest()
        if record is None or not isinstance(record.holder, JobHolder):
            return None
        return SubmittedJob(run, scheduler_of(record.holder), record.holder.job_id)
    except (PacelineError, OSError):  # such as a run that its owner shares, or a testbed that ended
        return None
