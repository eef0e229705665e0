"""How a run's end is told, once and for all, whichever of its workers are left to tell it.

A launcher sees the exit codes of its workers, among them of those that were lost on the way. So who
comes to the end writes into the run's folder how it was; and where the batch script
is gone with its node, does what the script would have done.
"""

import os
import sys
import time
from contextlib import suppress

from paceline.observe.event_writer import EventWriter
from paceline.schedulers.placement import current_job
from paceline.schedulers.scheduler import Scheduler
from paceline.specs import (
    BATCH_ALIVE_SECONDS,
    STOPPED_EXIT_CODE,
    TOO_FEW_EXIT_CODE,
    Ended,
    PacelineError,
    Placement,
    Run,
)

_BEATS = 4
"""Of the batch script, without which it counts as gone; a shared folder may show them late."""


def tell(run: Run, here: Placement, code: int) -> None:
    """Say that the training has come to its end, finished or stopped as asked."""
    # Workers on two nodes may have the same process id.
    draft = run.outcome_file.with_suffix(f".{here.node}-{os.getpid()}")
    draft.write_text(f"{code}\n")
    draft.rename(run.outcome_file)


def tell_failure(run: Run, here: Placement, code: int) -> None:
    """Say that the training ends since this worker has failed in a way that the others would, too.

    Too few workers are no failure: more may come.
    """
    if code == TOO_FEW_EXIT_CODE:
        run.requeue_file.touch()
        return
    if here.joins:
        return
    with suppress(FileExistsError), run.outcome_file.open("x") as file:
        file.write(f"{code}\n")


def end_job(run: Run, here: Placement, code: int, generation: int) -> None:
    """End or requeue the job where its batch script cannot, because the script's node is gone.

    `generation`: the last that this worker was in.
    """
    node = os.environ.get("PACELINE_BATCH_NODE")
    if node is None or node == here.node or (found := current_job()) is None:
        return
    scheduler, job = found
    # Among too few nobody leads; but the others may be going on.
    cut_off = code == TOO_FEW_EXIT_CODE
    if not (run.newest_generation == generation if cut_off else _leads(run, here)):
        return
    if _script_lives(run) and _has_node(scheduler, job, node):
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
    """Whether this worker led the last generation: one of them is enough to end the job."""
    from paceline.comm.rendezvous import found_leader, secret_of  # noqa: PLC0415 -- torch

    leader = found_leader(run, secret_of(run))
    return leader is not None and (leader.node, leader.pid) == (here.node, os.getpid())


def _script_lives(run: Run) -> bool:
    """Whether the job's script says that it does; its clock need not be this node's."""
    before = _last_beat(run)
    deadline = time.monotonic() + _BEATS * BATCH_ALIVE_SECONDS
    while time.monotonic() < deadline:
        if _last_beat(run) != before:
            return True
        time.sleep(BATCH_ALIVE_SECONDS / 4)
    return False


def _has_node(scheduler: Scheduler, job: str, node: str) -> bool:
    """Whether the scheduler still counts a node among the job's; a cut-off node may live."""
    try:
        return node in scheduler.nodes(job)
    except (PacelineError, ValueError):
        return True


def _last_beat(run: Run) -> bytes:
    # Opening a file makes a network file system look whether it has changed.
    return run.alive_file.read_bytes() if run.alive_file.exists() else b""
