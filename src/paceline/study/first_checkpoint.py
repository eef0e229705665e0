"""The checkpoint that the runs of a study start from."""

from paceline.checkpoints.storage_place import folder_at, opened
from paceline.jobs.resumed_run import check_checkpoints_owned
from paceline.remote.places import open_run
from paceline.specs import PacelineError, SavedStep


def saved_step(text: str) -> SavedStep:
    """Return the checkpoint that `RUN@STEP` names; `RUN`: the newest one of the run."""
    place, at, step = text.rpartition("@")
    if not (at and step.isdigit()):
        place, step = text, ""
    run = open_run(place, deep=True)
    check_checkpoints_owned(run)
    where = run.checkpoint_place
    folder = folder_at(where)
    if folder is not None:
        where = str(run.job.folder / folder)
    steps = opened(where).steps()
    if not steps:
        raise PacelineError(
            f"--from {text}: the run has no checkpoints",
            fix="give a run that saves some: `paceline run TRAIN --save-every STEPS`",
        )
    if step and int(step) not in steps:
        raise PacelineError(
            f"--from {text}: the run has no checkpoint of step {int(step)}",
            fix=f"it has those of step {', '.join(map(str, steps))}",
        )
    return SavedStep(run=run.place, checkpoints=where, step=int(step or steps[-1]))
