"""Runs the repetitions of a study that are not finished, a few at a time."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from paceline.report import RunReader, RunState
from paceline.specs import Job, Plan, Point, Run
from paceline.study.points import key
from paceline.study.study_folder import Repetition, StudyFolder

_POLL_SECONDS = 0.1
Over = Callable[[], bool]
"""Returns whether a started run is over."""


class Launcher(Protocol):
    """Starts runs."""

    def prepared(self, point: Point) -> tuple[Job, Plan]:
        """Return a point's job and plan."""

    def start(self, run: Run, point: Point) -> Over:
        """Start a run."""

    def rejoined(self, run: Run) -> Over | None:
        """Watch a run that another process started; None if it no longer runs."""


@dataclass
class Progress:
    """Progress of a study."""

    wanted: int
    done: int = 0
    going: list[str] = field(default_factory=list)
    """Names of the running repetitions."""
    failed: list[str] = field(default_factory=list)


def measure(
    folder: StudyFolder,
    launcher: Launcher,
    at_once: int,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Run the repetitions that are not finished.

    A point that fails is not tried again in this call, since it would most likely fail again.
    """
    repetitions, states = list(folder.repetitions()), folder.states()
    progress = Progress(wanted=len(repetitions))
    waiting: deque[Repetition] = deque()
    going: dict[str, tuple[Repetition, Run, Over]] = {}
    for each in repetitions:
        before = states.get(each.name, [])
        rejoined = [
            (run, over)
            for run, state in before
            if not state.over and (over := launcher.rejoined(run)) is not None
        ]
        if any(state.status == "finished" for _, state in before):
            progress.done += 1
        elif rejoined:
            going[each.name] = (each, *rejoined[-1])
        else:
            waiting.append(each)
    spoilt: set[str] = set()
    while waiting or going:
        while waiting and len(going) < at_once:
            each = waiting.popleft()
            if key(each.point) in spoilt:
                continue
            job, plan = launcher.prepared(each.point)
            run = folder.new_run(each, job, plan)
            going[each.name] = (each, run, launcher.start(run, each.point))
        progress.going = list(going)
        on_progress(progress)
        for name, (each, run, over) in list(going.items()):
            if over():
                del going[name]
                if _finished(run):
                    progress.done += 1
                else:
                    spoilt.add(key(each.point))
                    progress.failed.append(name)
        time.sleep(_POLL_SECONDS)
    progress.going = []
    on_progress(progress)
    return progress


def _finished(run: Run) -> bool:
    state: RunState = RunReader(run).refresh()
    return state.status == "finished"
