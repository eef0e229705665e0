"""OpenPBS and PBS Professional as a scheduler of Paceline.

Written to the documentation; only its batch scripts are tested, against golden files. It has not
run on a PBS cluster yet.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.schedulers.batch_script import render
from paceline.schedulers.quantities import minutes_of
from paceline.schedulers.scheduler import JobState, Scheduler, Task
from paceline.schedulers.site import CommandFailed
from paceline.specs import Faults, Job, JobEnvironment, PacelineError, Run

_STATES = {"Q": JobState.PENDING, "H": JobState.PENDING, "W": JobState.PENDING}

_NO_SUCH_JOB = 153
"""Exit code of qstat for a job that the server does not know."""


@dataclass(frozen=True)
class Pbs(Scheduler):
    """PBS starts one task per worker with pbsdsh; the batch script numbers them."""

    name: ClassVar[str] = "pbs"
    title: ClassVar[str] = "PBS"
    script_name: ClassVar[str] = "job.pbs"

    def ping(self) -> None:
        """Raise `Unreachable` unless the server answers."""
        self._call("qstat", "-B")

    def summary(self) -> str:
        """Return how many nodes are up, and the queues."""
        nodes = self._nodes()
        up = sum(node["state"] in ("free", "job-busy", "job-exclusive") for node in nodes)
        return f"{up} of {len(nodes)} nodes up; queues: {', '.join(self._queues())}"

    def fit(self, job: Job, devices: int | None) -> tuple[Job, list[str]]:
        """Fill in devices and CPUs; check the number of nodes and the queue's time limit."""
        nodes = [node.get("resources_available", {}) for node in self._nodes()]
        wanted = job.nodes + job.spares
        if wanted > len(nodes):
            raise PacelineError(
                f"--nodes {job.nodes} with --spares {job.spares} asks for more than the"
                f" {len(nodes)} nodes of {self.where}",
                fix=f"use {len(nodes)} nodes at most",
            )
        largest = sorted(nodes, key=lambda node: (_gpus(node), _cpus(node)), reverse=True)[:wanted]
        gpus, cpus = min(map(_gpus, largest)), min(map(_cpus, largest))
        devices = devices or max(1, gpus)
        if devices > (gpus or cpus):
            raise PacelineError(
                f"--devices {devices} asks for {devices} workers per node, but the nodes of"
                f" {self.where} have {gpus or cpus} {'GPUs' if gpus else 'CPUs'}",
                fix=f"use --devices {gpus or cpus} at most, or more --nodes",
            )
        self._check_time(job)
        fitted = {
            "devices_per_node": devices,
            "gpus_per_node": devices if gpus else 0,
            "cpus_per_worker": max(1, cpus // devices),
        }
        return job.model_copy(update=fitted), []

    def script(self, job: Job, run: Run, faults: Faults) -> str:
        """Return the script for qsub."""
        if job.environment != JobEnvironment():
            raise PacelineError(
                "an environment was given for the job, but pbsdsh passes none on to the workers",
                fix="leave out --setup, --teardown, --env and --keep-env, and edit the script",
            )
        return render(Path(__file__).with_name("job.pbs.jinja"), job, run, faults, self)

    def submit(self, script: Path) -> str:
        """Submit a script with qsub, which prints the job's ID."""
        return self._call("qsub", str(script)).strip()

    def state(self, job_id: str) -> JobState:
        """Return the state of a job."""
        found = self._job(job_id)
        if found is None:
            return JobState.UNKNOWN
        letter = found["job_state"]
        if letter in ("F", "X"):
            return JobState.FAILED if found.get("Exit_status") else JobState.COMPLETED
        return _STATES.get(letter, JobState.RUNNING)

    def nodes(self, job_id: str) -> list[str]:
        """Return the nodes of a job, from `exec_host`: `n1/0*8+n2/0*8`."""
        hosts = (self._job(job_id) or {}).get("exec_host", "")
        return [part.partition("/")[0] for part in filter(None, hosts.split("+"))]

    def is_preempted(self, job_id: str) -> bool:
        """Return False: PBS suspends or requeues a preempted job without a warning."""
        del job_id
        return False

    def cancel(self, job_id: str) -> None:
        """End a job."""
        self._call("qdel", job_id)

    def cancel_command(self, job_id: str) -> str:
        """Return the command that ends a job."""
        return f"qdel {job_id}"

    def requeue(self, job_id: str, run: Run) -> None:
        """Submit the run's script again and end the old job: only operators may call qrerun."""
        run.job_id_file.write_text(self.submit(run.path / self.script_name))
        self.cancel(job_id)

    def own_job(self) -> str | None:
        """Return the job that this process is part of."""
        return os.environ.get("PBS_JOBID")

    def task(self) -> Task | None:
        """Return this process's task; the batch script sets its number."""
        environment = os.environ
        if "PACELINE_PBS_RANK" not in environment:
            return None
        rank, tasks = int(environment["PACELINE_PBS_RANK"]), int(environment["PACELINE_PBS_TASKS"])
        nodes = int(environment["PACELINE_PBS_NODES"])
        return Task(
            rank=rank,
            tasks=tasks,
            local_rank=rank % (tasks // nodes),
            nodes=nodes,
            node=os.uname().nodename.partition(".")[0],
        )

    def end_tasks(self) -> None:
        """Signal all processes of the job; the batch script ignores the signal."""
        self._call("qsig", "-s", "SIGTERM", os.environ["PBS_JOBID"])

    def _call(self, *command: str) -> str:
        return self.site.call(*command, title=self.title)

    def _job(self, job_id: str) -> dict[str, Any] | None:
        try:
            found = json.loads(self._call("qstat", "-x", "-f", "-F", "json", job_id))
        except CommandFailed as error:
            if error.code != _NO_SUCH_JOB:
                raise
            return None
        jobs: dict[str, dict[str, Any]] = found.get("Jobs", {})
        return next(iter(jobs.values()), None)

    def _nodes(self) -> list[dict[str, Any]]:
        found = json.loads(self._call("pbsnodes", "-a", "-F", "json"))
        return list(found.get("nodes", {}).values())

    def _queues(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self._call("qstat", "-Q", "-f", "-F", "json"))
        queues: dict[str, dict[str, Any]] = found.get("Queue", {})
        return queues

    def _check_time(self, job: Job) -> None:
        if job.partition is None:
            return
        queues = self._queues()
        if job.partition not in queues:
            raise PacelineError(
                f"there is no queue {job.partition} on {self.where}",
                fix=f"use --partition with one of: {', '.join(queues)}",
            )
        limit = queues[job.partition].get("resources_max", {}).get("walltime")
        allowed = minutes_of(limit) if limit else None
        if allowed and job.limits.minutes and job.limits.minutes > allowed:
            raise PacelineError(
                f"--time asks for {job.limits.minutes} minutes, but the queue {job.partition}"
                f" allows {allowed}",
                fix=f"use --time {allowed} at most, or another --partition",
            )


def _gpus(resources: dict[str, Any]) -> int:
    return int(resources.get("ngpus", 0))


def _cpus(resources: dict[str, Any]) -> int:
    return int(resources.get("ncpus", 1))


SCHEDULER = Pbs()
