"""What a run's folder says that was watched, and trainings that go wrong where they are told to."""

import os
from pathlib import Path
from typing import Any

from paceline.specs import Faults, Layout, Plan, Refused, Run, Slow, SyncSettings, event_adapter
from paceline.sync.modes.allreduce import AllReduce
from ranks import PATIENT, new_run

FOUND = (Slow, Refused)


def watched_run(
    folder: Path,
    layout: Layout,
    sync: SyncSettings = AllReduce(),  # noqa: B008 -- frozen
    faults: Faults = PATIENT,
) -> Run:
    """A new run, which saves nothing."""
    run = new_run(folder, layout.workers, layout)
    plan = run.plan.model_copy(update={"sync": sync, "faults": faults})
    return Run.create(folder / "watched", run.job, Plan.model_validate(plan.model_dump()))


def found(run: Run) -> list[Any]:
    """The events about what was watched, in the order of time."""
    lines = [line for file in run.events.iterdir() for line in file.read_text().splitlines()]
    events = [event_adapter.validate_json(line) for line in lines]
    return sorted((e for e in events if isinstance(e, FOUND)), key=lambda event: event.time)


def rank() -> int:
    """Of this worker."""
    return int(os.environ["PACELINE_RANK"])
