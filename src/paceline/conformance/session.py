"""The runs of the conformance checks, on this machine or on a cluster."""

import datetime
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from paceline.cluster.probe.probe_folder import read_probed
from paceline.conformance.worker.figures import read_figures
from paceline.jobs.cluster_run import ClusterRequest, until_over
from paceline.jobs.failed_run import refuse_failed
from paceline.jobs.run_lease import lease_held, submitting
from paceline.jobs.user_messages import SILENT, Messages
from paceline.launch import room
from paceline.launch.supervisor import LocalLaunch
from paceline.report import RunReader, RunState
from paceline.schedulers.submission import SubmittedJob, fit_job
from paceline.specs import Faults, Job, Layout, Limits, PacelineError, Plan, Run, Saving
from paceline.specs.measurements.probe import Probed

CPU_WORKERS = 2
"""Workers where there is no accelerator."""
STEPS, FAULT_STEP = 20, 12
"""Steps of a training, and the one in which a fault strikes."""
LEAST_BATCH = 24
LONGEST_RUN_SECONDS, LONGEST_FIRST_RUN_SECONDS = 120.0, 300.0
CALM_RUN_SECONDS = 15.0
"""What the first run takes at most where little else runs; a slower machine gets more time."""
LONGEST_JOB_MINUTES = 5
_ENDING_SECONDS = 10.0
_WORKER = Path(__file__).parent / "worker"

NO_RESTART = Faults(attempts=1)
"""A lost worker stays lost, so that a check ends when the survivors do."""


@dataclass
class Session:
    """The devices under test, and the runs on them so far."""

    devices: int
    """Workers per node."""
    runs: Path
    """Parent of the run folders."""
    cluster: ClusterRequest = field(default_factory=ClusterRequest)
    messages: Messages = SILENT
    all_runs: list[Run] = field(default_factory=list)
    """Runs so far, in the order of their start."""
    slowness: float = 1.0
    """How many times as long as on a calm machine the first run took here, at least 1."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.cluster.nodes or 1

    @property
    def workers(self) -> int:
        """Workers on all nodes, one per device."""
        return self.nodes * self.devices

    @property
    def batch(self) -> int:
        """Samples of a global batch: at least one for each worker."""
        return max(LEAST_BATCH, self.workers)

    def trained(
        self,
        layout: Layout,
        *words: str,
        faults: Faults = Faults(),  # noqa: B008 -- frozen
        saving: Saving | None = None,
    ) -> RunState:
        """Run the training in a layout to its end, and return the run's state."""
        arguments = ("--batch", str(self.batch), "--steps", str(STEPS), *words)
        job = self._job(layout.workers, "training.py", "trained", arguments)
        plan = Plan(layout=layout, saving=saving or Saving(every_steps=0), faults=faults)
        return self._ended(self._new(job, plan))

    def resumed(self) -> RunState:
        """Resume the newest run, which was stopped."""
        run = self.all_runs[-1]
        state = RunReader(run).refresh()
        run.write_job(run.job.model_copy(update={"first_generation": state.generation + 1}))
        return self._ended(run)

    def measured(self, file: str, function: str, layout: Layout, *words: str) -> Run:
        """Run a function of a file in `worker` to its end."""
        job = self._job(layout.workers, file, function, words)
        run = self._new(job, Plan(layout=layout, saving=Saving(every_steps=0)))
        self._ended(run)
        return run

    @cached_property
    def about(self) -> list[dict[str, Any]]:
        """What each worker says about its device, by rank."""
        layout = Layout(replicas=self.workers)
        return read_figures(self.measured("measurements.py", "devices", layout))

    @cached_property
    def probed(self) -> Probed:
        """What a probe of all workers measures."""
        job = self._job(self.workers, "training.py", "", ())
        job = job.model_copy(update={"probe": True, "train": None})
        run = self._new(job, Plan(layout=Layout(replicas=self.workers)))
        self._ended(run)
        return read_probed(run)

    @cached_property
    def losses_of_one(self) -> list[float]:
        """The losses of the training on one device."""
        return self.trained(Layout()).loss

    def _job(self, workers: int, file: str, function: str, arguments: tuple[str, ...]) -> Job:
        nodes = self.nodes if workers == self.workers else 1
        return Job(
            name="check",
            train=_WORKER / file,
            function=function,
            arguments=arguments,
            nodes=nodes,
            devices_per_node=workers // nodes,
            partition=self.cluster.partition,
            check=False,
            folder=Path.cwd(),
            python=Path(sys.executable),
        )

    def _new(self, job: Job, plan: Plan) -> Run:
        if _is_here(self.cluster):
            # One worker has as many cores as one of several, so that their times compare.
            cores = len(os.sched_getaffinity(0)) // self.devices
            job = job.model_copy(update={"cpus_per_worker": max(1, cores)})
        else:
            job = job.model_copy(update={"limits": Limits(minutes=LONGEST_JOB_MINUTES)})
            scheduler = self.cluster.chosen_scheduler(self.messages)
            job = fit_job(job, scheduler, job.devices_per_node, self.messages.warn)
            self.cluster.check_shared([_WORKER, self.runs.absolute().parent], scheduler)
        run = Run.create(self.runs, job, plan)
        self.all_runs.append(run)
        return run

    def _ended(self, run: Run) -> RunState:
        """Start a run's workers, wait for their end, and return the run's state."""
        begin = time.monotonic()
        if _is_here(self.cluster):
            self._train_here(run)
        else:
            self._train_there(run)
        if len(self.all_runs) == 1:
            self.slowness = max(1.0, (time.monotonic() - begin) / CALM_RUN_SECONDS)
        state = RunReader(run).refresh()
        refuse_failed(run, state)
        return state

    def _train_here(self, run: Run) -> None:
        with lease_held(run) as lease:
            launch = LocalLaunch(run, lease)
            is_first = len(self.all_runs) == 1
            longest = LONGEST_FIRST_RUN_SECONDS if is_first else LONGEST_RUN_SECONDS * self.slowness
            try:
                if not _within(longest, launch):
                    raise PacelineError(
                        f"a run did not end within {longest:.0f} s",
                        fix=f"see the workers' logs in {run.logs}",
                    )
            finally:
                launch.kill()
                _within(_ENDING_SECONDS, launch)

    def _train_there(self, run: Run) -> None:
        scheduler = self.cluster.chosen_scheduler(self.messages)
        with submitting(run) as lease:
            submitted = SubmittedJob.submit(run, scheduler, lease)
        over: Callable[[], bool] = until_over(submitted)
        try:
            while not over():
                time.sleep(0.2)
        except KeyboardInterrupt:
            submitted.cancel()
            raise


def session_on(cluster: ClusterRequest, runs: Path, messages: Messages = SILENT) -> Session:
    """Return a session on the nodes of a cluster, or on this machine, one worker per device."""
    runs = runs / f"devices-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    if _is_here(cluster):
        accelerators = room.accelerators()
        devices = cluster.devices or accelerators or CPU_WORKERS
        if warning := room.check_room(devices, accelerators):
            messages.note(warning)
        return Session(devices, runs, cluster, messages)
    job = Job(
        name="check",
        nodes=cluster.nodes or 1,
        partition=cluster.partition,
        folder=Path.cwd(),
        python=Path(sys.executable),
    )
    fitted = fit_job(job, cluster.chosen_scheduler(messages), cluster.devices, messages.warn)
    return Session(fitted.devices_per_node, runs, cluster, messages)


def _is_here(cluster: ClusterRequest) -> bool:
    return cluster.nodes is None and cluster.testbed is None and cluster.scheduler is None


def _within(seconds: float, launch: LocalLaunch) -> bool:
    """Wait for the end of a launch; return whether it came in time."""
    deadline = time.monotonic() + seconds
    while launch.poll() is None:
        if time.monotonic() > deadline:
            return False
        launch.wait(0.1)
    return True
