"""The final outcome of a run, recorded by the workers that reach its end.

A launcher sees the exit codes of all its workers, including those lost during the run. So a worker
that reaches the end writes the outcome to the run folder. If the batch script is gone with its
node, the worker also ends or requeues the job in the script's place.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from paceline.membership.rendezvous.address_files import found_leader, secret_of
from paceline.observe.event_writer import EventWriter
from paceline.schedulers.batch_heartbeat import script_lives
from paceline.schedulers.scheduler import Scheduler
from paceline.schedulers.task_placement import current_job
from paceline.specs import (
    STOPPED_EXIT_CODE,
    TOO_FEW_EXIT_CODE,
    Ended,
    PacelineError,
    Placement,
    Run,
)
from paceline.specs.owned_files import open_owned, write_owned


def report(run: Run, code: int) -> None:
    """Write the outcome of a training that finished, or stopped on request."""
    with _told_if_disk_is_full():
        write_owned(run.outcome_file, f"{code}\n")


def tell_failure(run: Run, here: Placement, code: int) -> None:
    """Write the outcome of a training that ends because of an error on this worker.

    Too few workers are not a failure, since more may join: request a requeue instead.
    """
    if code == TOO_FEW_EXIT_CODE:
        with _told_if_disk_is_full():
            write_owned(run.requeue_file, "")
    elif not here.joins:
        with (
            _told_if_disk_is_full(),
            suppress(FileExistsError),
            open_owned(run.outcome_file, "x") as file,
        ):
            file.write(f"{code}\n")


@contextmanager
def _told_if_disk_is_full() -> Iterator[None]:
    """Print that the outcome cannot be written; the launcher still has the exit code."""
    try:
        yield
    except OSError as error:
        print(f"the outcome could not be recorded: {error}", file=sys.stderr)


def end_job(run: Run, here: Placement, code: int, generation: int) -> None:
    """End or requeue the job if its batch script cannot, because the script's node is gone.

    `generation`: the last generation of this worker.
    """
    node = os.environ.get("PACELINE_BATCH_NODE")
    if node is None or node == here.node or (found := current_job()) is None:
        return
    scheduler, job = found
    # Too few workers have no leader; but the others may have continued in a newer generation.
    cut_off = code == TOO_FEW_EXIT_CODE
    if not (run.newest_generation == generation if cut_off else _leads(run, here)):
        return
    if script_lives(run) and _has_node(scheduler, job, node):
        return
    again = run.requeue_file.exists() and code in (STOPPED_EXIT_CODE, TOO_FEW_EXIT_CODE)
    if not again:
        EventWriter(run.events, here.node).write(
            Ended(
                time=time.time(),
                node=here.node,
                generation=generation,
                exit_code=code,
            )
        )
    run.requeue_file.unlink(missing_ok=True)
    try:
        if again:
            scheduler.requeue(job, run)
        else:
            scheduler.cancel(job)
    except PacelineError as error:
        print(f"the job could not be {'requeued' if again else 'ended'}: {error}", file=sys.stderr)


def _leads(run: Run, here: Placement) -> bool:
    """Return whether this worker led the last generation: only one worker should end the job."""
    leader = found_leader(run, secret_of(run))
    return leader is not None and (leader.node, leader.pid) == (here.node, os.getpid())


def _has_node(scheduler: Scheduler, job: str, node: str) -> bool:
    """Return whether the job still has a node, which may be alive but cut off."""
    try:
        return node in scheduler.nodes(job)
    except (PacelineError, ValueError):
        return True
