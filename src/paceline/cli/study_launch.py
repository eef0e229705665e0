"""How the runs of a study come onto machines: here, or through Slurm."""

import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.console import say
from paceline.cli.options.layout import chosen_plan
from paceline.cli.submit import reached_slurm, until_over

if TYPE_CHECKING:
    from paceline.launch.supervisor import LocalLaunch
    from paceline.launch.target import Target
    from paceline.plan.calibration.calibrate import Fit
    from paceline.specs import Cluster, Estimate, Job, Kind, Plan, Point, Profile, Run
    from paceline.study.runner import Over


@dataclass(frozen=True)
class Asked:
    """What all runs of a study have in common."""

    target: "Target"
    layout: dict[str, Any]
    """Options of the layout that were given."""
    kind: "Kind"
    steps: int
    """0 for as many as the training has."""
    most_devices: int
    """Workers on a node, at the point that has most of them: what cores there are is divided by
    these everywhere, so that a worker of one point can do as much as that of another."""
    cluster: Path | None
    """A file to predict from."""
    quiet: bool

    def job(self, point: "Point") -> "Job":
        """What a point runs as, where the cluster has no say."""
        from paceline.specs import Job
        from paceline.study.points import RATE, SCALED

        return Job(
            name="point",
            train=self.target.file,
            function=self.target.function,
            steps=self.steps or None,
            batch_times=point.batch_times,
            equal_samples=self.kind == "quality",
            scale_rate=point.varied.get(RATE) == SCALED,
            nodes=point.nodes,
            devices_per_node=point.devices_per_node,
            folder=Path.cwd(),
            python=Path(sys.executable),
        )

    def plan(self, point: "Point") -> "Plan":
        """The layout and the way to agree of a point, with what is predicted of it."""
        given = self.layout | _typed(point.varied)
        plan = chosen_plan(None, point.workers, point.workers, given, {"every_steps": 0})
        return plan.model_copy(update={"estimate": self._predicted(plan, point)})

    def _predicted(self, plan: "Plan", point: "Point") -> "Estimate | None":
        from paceline.plan.calibration.measured_runs import Ran, rows
        from paceline.plan.search.layout_estimate import estimates

        if self._where is None:
            return None
        cluster, found = self._where
        profile, batch = self._profile
        ran = Ran(
            profile=profile,
            layout=plan.layout,
            nodes=point.nodes,
            devices_per_node=point.devices_per_node,
            batch=batch * point.batch_times,
            step_seconds=1.0,  # nothing is fitted to it
            sync=plan.sync,
        )
        (steps,) = rows([ran], cluster)
        (estimate,) = estimates(found, steps, plan.layout.precision)
        return estimate.model_copy(update={"layout": plan.layout})

    @cached_property
    def _where(self) -> "tuple[Cluster, Fit] | None":
        from paceline.cli.plan_inputs import asked_cluster
        from paceline.cli.plan_runs import learned

        if self.cluster is None:
            return None
        cluster = asked_cluster(self.cluster, None, None)
        return cluster, learned([], cluster, self.cluster, quiet=True)

    @cached_property
    def _profile(self) -> "tuple[Profile, int]":
        from paceline.cli.plan_inputs import profile_on, training_at

        assert self._where is not None
        cluster, _ = self._where
        precision = self.layout.get("precision", "fp32")
        return profile_on(self.target, precision, cluster), training_at(self.target).batch


@dataclass
class Here:
    """Runs on this machine, one after the other."""

    asked: Asked
    name: str = "here"
    _going: "list[LocalLaunch]" = field(default_factory=list)

    def prepared(self, point: "Point") -> "tuple[Job, Plan]":
        """What a point runs as."""
        from paceline.launch import supervisor

        warning = supervisor.check_room(point.workers, supervisor.accelerators())
        if warning:
            say(f"warning: {warning}", unless=self.asked.quiet)
        cores = max(1, len(os.sched_getaffinity(0)) // self.asked.most_devices)
        job = self.asked.job(point).model_copy(update={"cpus_per_worker": cores})
        return job, self.asked.plan(point)

    def start(self, run: "Run", point: "Point") -> "Over":
        """Begin a run."""
        from paceline.launch.supervisor import LocalLaunch

        del point
        launch = LocalLaunch(run)
        self._going.append(launch)
        return lambda: launch.poll() is not None

    def rejoined(self, run: "Run") -> "Over | None":
        """Workers end with the process that started them."""
        del run
        return None

    def cut_off(self) -> None:
        """End what goes on."""
        for launch in self._going:
            launch.kill()


class OnSlurm:
    """Runs on nodes of a cluster."""

    def __init__(
        self,
        asked: Asked,
        testbed: str | None,
        partition: str | None,
        time: str | None,
        *,
        assume_shared: bool,
    ) -> None:
        from paceline.schedulers import slurm as launcher
        from paceline.schedulers.slurm_client import minutes_of
        from paceline.specs import Limits

        self._asked, self._testbed, self._partition = asked, testbed, partition
        self._limits = Limits(minutes=minutes_of(time) if time else None)
        self._slurm = reached_slurm(testbed, quiet=asked.quiet)
        if not assume_shared:
            launcher.check_shared([asked.target.file, Path.cwd()], self._slurm)
        self.name = self._slurm.name

    def prepared(self, point: "Point") -> "tuple[Job, Plan]":
        """What a point runs as."""
        from paceline.schedulers import slurm as launcher

        wanted = self._asked.job(point).model_copy(
            update={"partition": self._partition, "limits": self._limits}
        )
        job, warnings = launcher.fitted(wanted, self._slurm, point.devices_per_node)
        for warning in warnings:
            say(f"warning: {warning}", unless=self._asked.quiet)
        cores = (job.cpus_per_worker or 1) * job.devices_per_node // self._asked.most_devices
        job = job.model_copy(update={"cpus_per_worker": max(1, cores)})
        return job, self._asked.plan(point)

    def start(self, run: "Run", point: "Point") -> "Over":
        """Begin a run, over the link that the point wants."""
        from paceline.schedulers import slurm as launcher
        from paceline.study.points import LINK
        from paceline.testbed import client

        if self._testbed is not None and LINK in point.varied:
            for node in client.status(self._testbed).nodes:
                client.link(self._testbed, node.name, rate=point.varied[LINK])
        return until_over(run, self._slurm, launcher.submit(run, self._slurm))

    def rejoined(self, run: "Run") -> "Over | None":
        """A job goes on without the process that submitted it."""
        from paceline.schedulers.slurm_client import ENDED_STATES

        if not run.slurm_job_file.exists():
            return None
        job_id = int(run.slurm_job_file.read_text())
        state = self._slurm.job_state(job_id)
        return (
            None if state is None or state in ENDED_STATES else until_over(run, self._slurm, job_id)
        )

    def cut_off(self) -> None:
        """Jobs go on, and are taken up by the next go."""


def _typed(varied: dict[str, str]) -> dict[str, Any]:
    """Those of a point's options that are a layout's, as values."""
    from pydantic import ValidationError

    from paceline.specs import Layout, PacelineError

    given: dict[str, Any] = {key: value for key, value in varied.items() if key == "sync"}
    for key, value in varied.items():
        if key in Layout.model_fields:
            try:
                given[key] = getattr(Layout.model_validate({key: value}), key)
            except ValidationError as error:
                raise PacelineError(
                    f"--vary {key}={value}: {error.errors()[0]['msg']}",
                    fix=f"give values that `paceline run --{key.replace('_', '-')}` takes",
                ) from None
    return given
