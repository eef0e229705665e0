"""Launchers of a study's runs: on this machine, or through a scheduler."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline.cluster.catalog import read_cluster
from paceline.cluster.kernels.kernel_files import with_kernels
from paceline.jobs.plan_choice import chosen_plan
from paceline.jobs.run_lease import removed_if_refused, submitting, take_lease
from paceline.launch import room
from paceline.launch.supervisor import LocalLaunch
from paceline.launch.target import Target
from paceline.plan.planner import Predictor
from paceline.schedulers.scheduler import Scheduler
from paceline.schedulers.submission import SubmittedJob, check_shared, fit_job
from paceline.specs import (
    Allocation,
    Job,
    Kind,
    Layout,
    Limits,
    PacelineError,
    Plan,
    Point,
    Run,
    SavedStep,
)
from paceline.specs.base import problem_of
from paceline.specs.measurements.study import compares_quality
from paceline.study.points import LINK, RATE, SCALED
from paceline.study.runner import Over


@dataclass(frozen=True)
class RunSettings:
    """Settings common to all runs of a study."""

    target: Target
    layout: dict[str, Any]
    """Layout options given by the user."""
    kind: Kind
    steps: int
    """Steps of each run; 0: as many as the training has."""
    starts_from: SavedStep | None
    """The checkpoint that each run starts from; None: the beginning."""
    ledger: bool
    """Whether each run records its samples."""
    most_devices: int
    """Workers on a node at the point with the most. Every point divides a node's cores by it, so
    that a worker has the same number of cores everywhere."""
    cluster: Path | None
    """The cluster's file, for predictions."""
    warn: Callable[[str], None]

    def job(self, point: Point) -> Job:
        """Return a point's job, without the settings that depend on the cluster."""
        return Job(
            name="point",
            train=self.target.file,
            function=self.target.function,
            arguments=self.target.arguments,
            steps=self.steps or None,
            starts_from=self.starts_from,
            batch_times=point.batch_times,
            equal_samples=compares_quality(self.kind),
            scale_rate=point.varied.get(RATE) == SCALED,
            nodes=point.nodes,
            devices_per_node=point.devices_per_node,
            folder=Path.cwd(),
            python=Path(sys.executable),
        )

    def plan(self, point: Point) -> Plan:
        """Return a point's layout and synchronization mode, with a prediction."""
        layout = self.layout | _layout_options(point.varied)
        saving = {"every_steps": 0, "ledger": self.ledger}
        plan = chosen_plan(None, point.workers, point.workers, layout, saving)
        if self._predictor is None:
            return plan
        estimate = self._predictor.predict(
            plan, point.nodes, point.devices_per_node, point.batch_times
        )
        return plan.model_copy(update={"estimate": estimate})

    @cached_property
    def _predictor(self) -> Predictor | None:
        if self.cluster is None:
            return None
        return Predictor(self.target, with_kernels(read_cluster(self.cluster), self.cluster))


class LocalLauncher:
    """Starts runs on this machine."""

    name = "here"

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._running: list[LocalLaunch] = []

    def prepared(self, point: Point) -> tuple[Job, Plan]:
        """Return a point's job and plan."""
        warning = room.check_room(point.workers, room.accelerators())
        if warning:
            self._settings.warn(warning)
        cores = max(1, len(os.sched_getaffinity(0)) // self._settings.most_devices)
        job = self._settings.job(point).model_copy(update={"cpus_per_worker": cores})
        return job, self._settings.plan(point)

    def start(self, run: Run, point: Point) -> Over:
        """Start a run."""
        del point
        launch = LocalLaunch(run, take_lease(run))
        self._running.append(launch)
        return lambda: launch.poll() is not None

    def rejoined(self, run: Run) -> Over | None:
        """Return None: local workers end with the process that started them."""
        del run
        return None

    def interrupt(self) -> None:
        """Kill the running workers."""
        for launch in self._running:
            launch.kill()


class ClusterLauncher:
    """Starts runs on nodes of a cluster, through its scheduler."""

    def __init__(
        self,
        settings: RunSettings,
        scheduler: Scheduler,
        partition: str | None,
        allocation: Allocation,
        minutes: int | None,
        *,
        watch: Callable[[SubmittedJob], Over],
        set_link: Callable[[str], None] | None = None,
        assume_shared: bool,
    ) -> None:
        """`watch` returns a function that reports whether a job is over; `set_link` sets the
        rate of a testbed's links."""
        self._settings, self._scheduler = settings, scheduler
        self._asked: dict[str, Any] = {
            "partition": partition,
            "allocation": allocation,
            "limits": Limits(minutes=minutes),
        }
        self._watch, self._set_link = watch, set_link
        if not assume_shared:
            check_shared([settings.target.file, Path.cwd()], scheduler.site)
        self.name = scheduler.where

    def prepared(self, point: Point) -> tuple[Job, Plan]:
        """Return a point's job and plan."""
        wanted = self._settings.job(point).model_copy(update=self._asked)
        job = fit_job(wanted, self._scheduler, point.devices_per_node, self._settings.warn)
        cores = (job.cpus_per_worker or 1) * job.devices_per_node // self._settings.most_devices
        job = job.model_copy(update={"cpus_per_worker": max(1, cores)})
        return job, self._settings.plan(point)

    def start(self, run: Run, point: Point) -> Over:
        """Submit a run, after setting the links to the point's rate."""
        if self._set_link is not None and LINK in point.varied:
            self._set_link(point.varied[LINK])
        with removed_if_refused(run), submitting(run) as lease:
            return self._watch(SubmittedJob.submit(run, self._scheduler, lease))

    def rejoined(self, run: Run) -> Over | None:
        """Watch the run's job if it still exists: it outlives the process that submitted it."""
        job = SubmittedJob.of_run(run, self._scheduler)
        return None if job is None else self._watch(job)

    def interrupt(self) -> None:
        """Do nothing: jobs continue, and the next call of the command rejoins them."""


def _layout_options(varied: dict[str, str]) -> dict[str, Any]:
    """Return the point's options that belong to the layout, as typed values."""
    given: dict[str, Any] = {key: value for key, value in varied.items() if key == "sync"}
    for key, value in varied.items():
        if key in Layout.model_fields:
            try:
                given[key] = getattr(Layout.model_validate({key: value}), key)
            except ValidationError as error:
                raise PacelineError(
                    f"--vary {key}={value}: {problem_of(error.errors()[0])}",
                    fix=f"give values that `paceline run --{key.replace('_', '-')}` takes",
                ) from None
    return given
