"""The protocol of a scheduler, and the registry of the schedulers that implement it.

A scheduler has two kinds of callers. On a login node, `paceline submit` uses it to check a job
against the site's limits, write and submit the batch script, and follow the job. Inside the job,
each worker gets its rank from it and, at the end of a run, whether the job was preempted.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import ClassVar, Self

from paceline.schedulers.site import Site
from paceline.specs import Allocation, Faults, Job, PacelineError, Run
from paceline.specs.registry import Registry


class JobState(Enum):
    """The state of a job in the queue."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The scheduler has forgotten the job: it ended some time ago."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class Task:
    """This process as one of the tasks that the scheduler started."""

    rank: int
    tasks: int
    """Tasks of the job, spares included."""
    local_rank: int
    nodes: int
    node: str
    """The name of its node."""
    device_bound: bool = False
    """Whether the scheduler shows each task its own device only."""
    memory_bytes: int | None = None
    """Memory that the job may use on each node; unset where the scheduler does not limit it."""


@dataclass(frozen=True)
class Waiting:
    """Why a job is not running yet."""

    reason: str
    """In plain words, as the rest of "the job waits: …"."""
    word: str
    """The scheduler's own word for it."""
    start: datetime | None = None
    """Estimated start, in local time; None if the scheduler has none yet."""

    def sentence(self, scheduler: str) -> str:
        """Return one line about it; `scheduler`: the scheduler's name in messages."""
        start = ""
        if self.start is not None:
            today = self.start.date() == datetime.now(self.start.tzinfo).date()
            start = f"; estimated start {self.start:{'%H:%M' if today else '%Y-%m-%d %H:%M'}}"
        return f"the job waits: {self.reason} ({scheduler}: {self.word}){start}"


@dataclass(frozen=True)
class PastWait:
    """How long a job waited in the queue."""

    nodes: int
    """Nodes that it had."""
    seconds: float


@dataclass(frozen=True)
class TaskFailure:
    """A line of the job's log about tasks that failed, or about a lost node."""

    node: str
    ranks: tuple[int, ...]
    """Empty if the line is about the whole node."""
    message: str


@dataclass(frozen=True)
class SiteChoice:
    """An option of `submit` whose values a site names."""

    option: str
    """Its long name without dashes."""
    names: tuple[str, ...]
    default: str | None = None
    """What the site takes if nothing is said, or the only one."""
    needed: bool = False
    """Whether a job without it is refused."""


@dataclass(frozen=True)
class Scheduler(ABC):
    """One kind of scheduler. A job's ID is the text that `submit` returns."""

    site: Site = field(default_factory=Site)
    """The scheduler's cluster; by default this machine's."""

    name: ClassVar[str]
    """Name for `--scheduler`."""
    title: ClassVar[str]
    """Name in messages."""
    script_name: ClassVar[str]
    """The file name of the batch script in the run's folder."""
    needs_shared_files: ClassVar[bool] = True
    """Whether its nodes can only train a run in a folder that all of them share."""

    variables: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of its variables, which tasks in containers need."""
    runs_containers: ClassVar[bool] = False
    """Whether its batch script starts a job's tasks in the job's container."""
    needs_runtime: ClassVar[bool] = True
    """Whether the job's container needs a runtime on the nodes; else the cluster has its own."""
    only_by_name: ClassVar[bool] = False
    """Whether only `--scheduler` chooses it, even if it answers."""

    @property
    def where(self) -> str:
        """The cluster's name in messages."""
        return self.site.name or self.title

    def at(self, site: Site) -> Self:
        """Return the same scheduler at another site."""
        return replace(self, site=site)

    # On a login node

    @abstractmethod
    def ping(self) -> None:
        """Raise `Unreachable` unless the scheduler answers."""

    @abstractmethod
    def summary(self) -> str:
        """Return one line about the cluster for `paceline doctor`: nodes and partitions."""

    def choices(self) -> list[SiteChoice]:
        """Return what a user can choose from at this site, as far as the scheduler tells."""
        return []

    def past_waits(self, partition: str | None, account: str | None) -> list[PastWait]:
        """Return how long recent jobs waited; raise if the scheduler does not tell."""
        del partition, account
        raise PacelineError(
            f"how long jobs wait was asked for, but Paceline does not know how to ask {self.title}",
            fix="leave --queue out",
        )

    @abstractmethod
    def fit(self, job: Job, devices: int | None) -> tuple[Job, list[str]]:
        """Fill in the site's defaults, and return the job with warnings for the user.

        `devices`: workers per node; by default one per GPU, or one. Raise if the site's limits do
        not allow the job, so that no job is queued that cannot run.
        """

    def options(self, allocation: Allocation) -> list[str]:
        """Return what a site asks for as options of the scheduler; raise if there are none."""
        if allocation.given:
            raise PacelineError(
                f"{', '.join(allocation.given)} was given for the job, but Paceline does not know"
                f" how to say it to {self.title}",
                fix="leave it out, and set it in the scheduler's own way, such as by its"
                " environment variables",
            )
        return []

    @abstractmethod
    def script(self, job: Job, run: Run, faults: Faults) -> str:
        """Return the batch script of a run; see `batch_script.render`."""

    @abstractmethod
    def submit(self, script: Path) -> str:
        """Submit a batch script and return the job's ID."""

    # About a job, on a login node or inside the job

    @abstractmethod
    def state(self, job_id: str) -> JobState:
        """Return the state of a job.

        Raise an error if the scheduler does not answer: `UNKNOWN` means that the job has ended.
        """

    def waiting(self, job_id: str) -> Waiting | None:
        """Return why a job is not running yet; None if it does not wait, or nobody knows why."""
        del job_id
        return None

    @abstractmethod
    def nodes(self, job_id: str) -> list[str]:
        """Return the names of the nodes that a job has now."""

    @abstractmethod
    def is_preempted(self, job_id: str) -> bool:
        """Whether the job is preempted by another one, now or after a grace time."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """End a job."""

    @abstractmethod
    def cancel_command(self, job_id: str) -> str:
        """Return the command that ends a job, for a message."""

    @abstractmethod
    def requeue(self, job_id: str, run: Run) -> None:
        """Put the run's job back into the queue."""

    # Inside a job

    @abstractmethod
    def own_job(self) -> str | None:
        """Return the ID of the job that this process is part of; None outside a job."""

    @abstractmethod
    def task(self) -> Task | None:
        """Return this process's task from its environment; None if it is not a task."""

    @abstractmethod
    def end_tasks(self) -> None:
        """End all tasks of the job that this process is part of, without requeueing it."""

    # In a report

    def task_failure(self, line: str) -> TaskFailure | None:
        """Return the task failure that a line of the job's log reports, if any."""
        del line
        return None


SCHEDULERS: Registry[Scheduler] = Registry(
    "scheduler",
    group="paceline.schedulers",
    package="paceline.schedulers.kinds",
    attribute="SCHEDULER",
    kind=Scheduler,  # type: ignore[type-abstract]
)
"""All schedulers by name, built in or from other packages."""
