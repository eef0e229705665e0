"""A job's lease of its run: `python -m paceline.schedulers.job_lease RUN` in the batch script.

Prints the lease's term. The process that submitted the job has handed its own term over to the job;
a job that was submitted by hand or requeued under another ID takes the next term.
"""

import sys
import time
from pathlib import Path

from paceline.lease.lease import Lease, LeaseHeld
from paceline.lease.object_lease import lease_store_of
from paceline.lease.record import JobHolder, LeaseRecord
from paceline.lease.store import LeaseStore
from paceline.schedulers.living_trainer import living_trainer
from paceline.schedulers.scheduler import SCHEDULERS
from paceline.schedulers.task_placement import current_job
from paceline.specs import PacelineError, Run

_PATIENCE_SECONDS = 30.0
"""A job may start before its submission is complete, or before the job that requeued it ends."""
_POLL_SECONDS = 0.5


def main() -> int:
    """Print the term of this job's lease and return 0; print why there is none and return 2."""
    try:
        print(lease_term(Run.open(Path(sys.argv[1]))))
    except PacelineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def lease_term(run: Run) -> int:
    """Return the term of the lease that this process's job has of a run; take it if need be."""
    found = current_job()
    if found is None:
        raise PacelineError("this is no job's script", fix="submit it to its scheduler")
    scheduler, job_id = found
    store, deadline = lease_store_of(run), time.monotonic() + _PATIENCE_SECONDS
    while True:
        newest = store.newest()
        holder = JobHolder(scheduler=scheduler.name, job_id=job_id, testbed=_testbed(newest))
        if newest and newest.holder == holder and not store.is_released(newest.term):
            return newest.term
        try:
            return Lease.take(store, holder, lambda record: _living(run, store, record)).term
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _living(run: Run, store: LeaseStore, record: LeaseRecord) -> PacelineError | None:
    return living_trainer(run, store, record, lambda job: SCHEDULERS.get(job.scheduler))


def _testbed(newest: LeaseRecord | None) -> str | None:
    """Return the testbed that the run was submitted to; a job does not know its testbed's name."""
    return newest.holder.testbed if newest and isinstance(newest.holder, JobHolder) else None


if __name__ == "__main__":
    sys.exit(main())
