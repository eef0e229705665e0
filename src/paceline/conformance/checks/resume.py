"""Checkpoint and resume: a training that was stopped continues to the same losses."""

from paceline.conformance.check import Check, Outcome, failed, passed
from paceline.conformance.losses import difference
from paceline.conformance.session import Session
from paceline.specs import Layout, Saving

LARGEST_DIFFERENCE = 1e-4
STOP_STEP = 8
"""Early enough for accelerators, which stop up to seven steps later."""


def _run(session: Session) -> Outcome:
    stopped = session.trained(
        Layout(shards=session.workers),
        *("--fault", "stop", "--at", str(STOP_STEP)),
        saving=Saving(every_steps=STOP_STEP // 2),
    )
    if stopped.status != "stopped" or not stopped.checkpoints:
        return failed(f"the run did not stop with a checkpoint: it is {stopped.status}")
    at = stopped.checkpoints[-1].step
    resumed = session.resumed()
    found = difference(resumed.loss, session.losses_of_one)
    saved = stopped.checkpoints[-1]
    figures = {
        "stopped_at_step": at,
        "largest_relative_difference": found,
        "checkpoint_bytes": saved.bytes,
        "checkpoint_seconds": saved.seconds,
    }
    if not found <= LARGEST_DIFFERENCE:
        return failed(f"losses differ by {found:.1e} from an undisturbed run", **figures)
    return passed(
        f"stopped at step {at}, resumed; losses within {found:.0e} of an undisturbed run's",
        **figures,
    )


CHECK = Check(
    name="resume",
    about="a stopped training resumes to the same losses",
    run=_run,
    typical_seconds=20,
)
