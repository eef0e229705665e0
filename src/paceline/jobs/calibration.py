"""What the planner learns from earlier runs and probes: step times, and the critical batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from paceline.jobs.user_messages import short_place
from paceline.launch.target import Target
from paceline.plan.planner import FinishedRun
from paceline.specs import Learning, PacelineError, Run

if TYPE_CHECKING:
    from paceline.report import RunState

LEARNING_FILE = "learning.toml"
"""Beside the file of a cluster: what a probe of learning measured."""


@dataclass(frozen=True)
class ReadRun:
    """A run with its events, which may be many: they are read once."""

    run: Run
    state: "RunState"

    @classmethod
    def of(cls, run: Run) -> "ReadRun":
        """Read a run's events."""
        from paceline.report import RunReader  # noqa: PLC0415 -- most plans read no run

        return cls(run, RunReader(run).refresh())

    @property
    def learning(self) -> Learning | None:
        """What the run measured of its batch."""
        from paceline.report.run.learning import learning_of  # noqa: PLC0415 -- as above

        return learning_of(self.run, self.state)


def read_runs(paths: Iterable[Path]) -> list[ReadRun]:
    """Read runs by their folders."""
    runs = [Run.open_to_read(path) for path in paths]
    return [ReadRun.of(run) for run in runs]


def measured_learning(
    target: Target, runs: Sequence[ReadRun], cluster_file: Path
) -> Learning | None:
    """Return what was measured of a training's batch: by the longest of its runs that resolved it,
    else by a probe."""
    found = [
        each.learning
        for each in runs
        if (each.run.job.train, each.run.job.function) == (target.file, target.function)
    ]
    resolved = [each for each in found if each is not None and each.critical is not None]
    if resolved:
        return max(resolved, key=lambda each: each.growth[-1].samples)
    file = cluster_file.parent / LEARNING_FILE
    if not file.exists():
        return None
    probed = Learning.read(file)
    return probed if probed.training == f"{target.file.name}:{target.function}" else None


def finished_run(each: ReadRun) -> FinishedRun:
    """Return a run's layout and step time."""
    from paceline.report import summary  # noqa: PLC0415 -- as above

    run, state = each.run, each.state
    figures = summary(state)
    if run.job.train is None or figures.median_step_seconds is None or figures.batch is None:
        raise PacelineError(
            f"{short_place(run)} has no steps to calibrate with",
            fix="give runs that have trained for a while",
        )
    # The first step includes one-time work.
    mean = fmean(state.seconds[1:] or state.seconds)
    return FinishedRun(
        target=Target(run.job.train, run.job.function, run.job.arguments),
        layout=run.plan.layout,
        sync=run.plan.sync,
        nodes=figures.nodes,
        devices_per_node=figures.workers // figures.nodes,
        batch=figures.batch,
        step_seconds=mean if run.plan.sync.replicas_differ else figures.median_step_seconds,
    )
