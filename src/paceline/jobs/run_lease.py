"""The lease of a run that this process is about to train or submit."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from paceline.lease.lease import Lease
from paceline.lease.object_lease import lease_store_of
from paceline.lease.record import JobHolder, this_process
from paceline.remote.places import remove_run
from paceline.schedulers.living_trainer import living_trainer
from paceline.schedulers.scheduler import SCHEDULERS, Scheduler
from paceline.schedulers.site import CommandFailed
from paceline.specs import Run
from paceline.testbed import client


def take_lease(run: Run) -> Lease:
    """Take a run's lease for this process and renew it; refuse if its holder is alive."""
    store = lease_store_of(run)
    lease = Lease.take(
        store,
        this_process(),
        lambda record: living_trainer(run, store, record, scheduler_of),
    )
    lease.keep()
    return lease


@contextmanager
def lease_held(run: Run) -> Iterator[Lease]:
    """Hold a run's lease for the block."""
    lease = take_lease(run)
    try:
        yield lease
    finally:
        lease.release()


@contextmanager
def submitting(run: Run) -> Iterator[Lease]:
    """Hold a run's lease for the block, which hands it over to a job; release it on an error."""
    lease = take_lease(run)
    try:
        yield lease
    except BaseException:
        lease.release()
        raise


@contextmanager
def removed_if_refused(run: Run) -> Iterator[Run]:
    """Yield a run that was created to be submitted in the block; remove it if that is refused.

    If the scheduler does not answer, the job may be there."""
    try:
        yield run
    except CommandFailed:
        with suppress(OSError):
            remove_run(run)
        raise


def scheduler_of(job: JobHolder) -> Scheduler:
    """Return the scheduler that has a job."""
    return client.scheduler(job.testbed) if job.testbed else SCHEDULERS.get(job.scheduler)
