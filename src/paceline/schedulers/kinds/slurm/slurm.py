"""Slurm as a scheduler: its commands, its job states and its variables."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.cluster.visible_devices import visible_count
from paceline.schedulers.kinds.slurm.controller import TITLE, Controller
from paceline.schedulers.kinds.slurm.partition_limits import fit
from paceline.schedulers.kinds.slurm.past_waits import past_waits
from paceline.schedulers.kinds.slurm.sbatch_variables import with_variables
from paceline.schedulers.kinds.slurm.site_choices import choices
from paceline.schedulers.kinds.slurm.waiting_reasons import waiting_of
from paceline.schedulers.scheduler import (
    JobState,
    PastWait,
    Scheduler,
    SiteChoice,
    Task,
    TaskFailure,
    Waiting,
)
from paceline.schedulers.site import CommandFailed
from paceline.specs import Allocation, Faults, Job, PacelineError, Run

_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
    }
)
_NAMED = (
    "account",
    "qos",
    "constraint",
    "reservation",
    "gres",
    "licenses",
    "dependency",
    "begin",
)
"""Fields of an `Allocation` that sbatch calls the same."""
_TASK_ERROR = re.compile(
    r"^srun: error: (?P<nodes>[^\s:]+): tasks? (?P<ranks>\d+(?:[,-]\d+)*): (?P<what>.+)$"
)
_NODE_FAILURE = re.compile(r"^srun: error: (?P<what>Node failure on (?P<nodes>\S+))")
_CANCELLED = re.compile(
    r"error: \*\*\* (?:JOB|STEP) \S+ ON (?P<nodes>\S+) (?P<what>CANCELLED AT .+?) \*\*\*"
)


@dataclass(frozen=True)
class Slurm(Scheduler):
    """Slurm 22.05 and later."""

    name: ClassVar[str] = "slurm"
    title: ClassVar[str] = TITLE
    script_name: ClassVar[str] = "job.sbatch"
    variables: ClassVar[tuple[str, ...]] = ("SLURM",)
    runs_containers: ClassVar[bool] = True
    needs_shared_files: ClassVar[bool] = False

    @property
    def controller(self) -> Controller:
        """The cluster's controller."""
        return Controller(self.site)

    def ping(self) -> None:
        """Raise `Unreachable` unless the controller answers."""
        self.controller.ping()

    def summary(self) -> str:
        """Return the number of usable nodes and the names of the partitions."""
        partitions = ", ".join(each.name for each in self.controller.partitions())
        nodes = self.controller.nodes()
        usable = sum(node.usable for node in nodes)
        return f"{usable} of {len(nodes)} nodes up; partitions: {partitions}"

    def choices(self) -> list[SiteChoice]:
        """Return partitions, the user's accounts and QOS, features and generic resources."""
        return choices(self.controller)

    def past_waits(self, partition: str | None, account: str | None) -> list[PastWait]:
        """Return how long recent jobs waited, from the accounting; raise if there is none."""
        return past_waits(self.controller, partition, account)

    def fit(self, job: Job, devices: int | None) -> tuple[Job, list[str]]:
        """Fill in partitions, devices and CPUs; check names, rights and limits, and let Slurm
        check the rest."""
        job, warnings = fit(with_variables(job), self.controller, devices)
        if options := self.options(job.allocation):
            where = (f"--partition={job.partition}", f"--nodes={job.nodes + job.spares}")
            self.controller.call("sbatch", "--test-only", *where, *options, "--wrap=true")
        return job, warnings

    def options(self, allocation: Allocation) -> list[str]:
        """Return what a site asks for as options of sbatch, the user's own last: they win."""
        named = {name: getattr(allocation, name) for name in _NAMED}
        found = [f"--{name}={value}" for name, value in named.items() if value is not None]
        if allocation.exclusive:
            found.append("--exclusive")
        if allocation.mail:
            found += ["--mail-type=BEGIN,END,FAIL,REQUEUE", f"--mail-user={allocation.mail}"]
        return [*found, *allocation.options]

    def script(self, job: Job, run: Run, faults: Faults) -> str:
        """Return the sbatch script."""
        # Workers read their rank before they load torch, and must not wait for Jinja.
        from paceline.schedulers.batch_script import render  # noqa: PLC0415

        return render(Path(__file__).with_name("job.sbatch.jinja"), job, run, faults, self)

    def submit(self, script: Path) -> str:
        """Test the script with Slurm, and submit it."""
        self.controller.call("sbatch", "--test-only", str(script))
        output = self.controller.call("sbatch", "--parsable", str(script))
        match = re.search(r"^(\d+)", output, re.MULTILINE)
        if match is None:
            raise PacelineError(
                f"sbatch printed no job ID but {output.strip()!r}", fix="look at `squeue --me`"
            )
        return match[1]

    def state(self, job_id: str) -> JobState:
        """Return the state of a job; raise if Slurm knows the job but does not say."""
        try:
            rows = self.controller.rows("job", job_id)
        except CommandFailed:
            if job_id in self._own_jobs():
                raise
            return JobState.UNKNOWN
        found = rows[0].get("JobState", "") if rows else ""
        if found == "COMPLETED":
            return JobState.COMPLETED
        if found in _ENDED:
            return JobState.FAILED
        if not found:
            return JobState.UNKNOWN
        return JobState.PENDING if found == "PENDING" else JobState.RUNNING

    def waiting(self, job_id: str) -> Waiting | None:
        """Return why a job is pending; None if it is not, or Slurm forgot it."""
        try:
            rows = self.controller.rows("job", job_id)
        except CommandFailed:
            return None
        return waiting_of(rows[0]) if rows else None

    def nodes(self, job_id: str) -> list[str]:
        """Return the nodes of a job."""
        (named,) = self.controller.call(
            "squeue", "--noheader", "--jobs", job_id, "--format=%N"
        ).split()
        return self.controller.call("scontrol", "show", "hostnames", named).split()

    def is_preempted(self, job_id: str) -> bool:
        """Whether the job is preempted, also during its grace time."""
        (row,) = self.controller.rows("job", job_id)
        return row.get("PreemptTime", "None") != "None"

    def _own_jobs(self) -> list[str]:
        """Return all jobs of this user that Slurm remembers; raise if it does not answer."""
        return self.controller.call(
            "squeue", "--me", "--noheader", "--states=all", "--format=%A"
        ).split()

    def cancel(self, job_id: str) -> None:
        """End a job."""
        self.controller.call("scancel", job_id)

    def cancel_command(self, job_id: str) -> str:
        """Return the command that ends a job."""
        return f"scancel {job_id}"

    def requeue(self, job_id: str, run: Run) -> None:
        """Put a job back into the queue, under the same ID."""
        del run
        self.controller.call("scontrol", "requeue", job_id)

    def own_job(self) -> str | None:
        """Return the job that this process is part of."""
        return os.environ.get("SLURM_JOB_ID")

    def task(self) -> Task | None:
        """Return this process's task of an srun step."""
        environment = os.environ
        if not environment.get("SLURM_STEP_ID", "").isdigit():
            return None  # in the batch script, or outside a job
        memory = environment.get("SLURM_MEM_PER_NODE", "")
        return Task(
            rank=int(environment.get("SLURM_PROCID", "0")),
            tasks=int(environment.get("SLURM_NTASKS", "1")),
            local_rank=int(environment.get("SLURM_LOCALID", "0")),
            nodes=int(environment.get("SLURM_NNODES", "1")),
            node=environment.get("SLURMD_NODENAME", ""),
            device_bound=_device_bound(),
            memory_bytes=int(memory) << 20 if memory.isdigit() and int(memory) else None,
        )

    def end_tasks(self) -> None:
        """End the srun step that this process is part of."""
        step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
        self.controller.call("scancel", step)

    def task_failure(self, line: str) -> TaskFailure | None:
        """Return the failed tasks or the lost node that srun reports."""
        if match := _TASK_ERROR.match(line):
            return TaskFailure(_first_node(match["nodes"]), _numbers(match["ranks"]), match["what"])
        if match := _NODE_FAILURE.match(line) or _CANCELLED.search(line):
            return TaskFailure(_first_node(match["nodes"]), (), match["what"])
        return None


def _device_bound() -> bool:
    """Return whether each task of a node is shown its own devices, by Slurm or a script's wrapper.

    Without --gpus-per-task or --gpu-bind, all tasks see all devices of the job on their node.
    """
    environment = os.environ
    if "SLURM_GPUS_PER_TASK" in environment or "SLURM_TRES_PER_TASK" in environment:
        return True
    visible, of_job = visible_count(), environment.get("SLURM_GPUS_ON_NODE", "")
    return visible is not None and of_job.isdigit() and visible < int(of_job)


def _numbers(ranges: str) -> tuple[int, ...]:
    """Return the numbers of ranges such as `0,2-4`."""
    numbers: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _first_node(nodes: str) -> str:
    """Return the first node of a list: `n2` for `n[2-3,7]`."""
    return re.sub(r"\[(\w+)[^\]]*\].*", r"\1", nodes)
